//! Which CTAs of the grid carry which stage.

use crate::abi::Head;
use crate::order::Share;

/// The CTAs that stages have to themselves in a launch: as many as they ask for, or none where it carries all stages one
/// after the other.
#[inline(always)]
pub fn dedicated<const S: usize>(head: &Head, mut asked: [u32; S]) -> [u32; S] {
    for ctas in &mut asked {
        if head.in_turn != 0 {
            *ctas = 0;
        }
    }
    asked
}

/// The share of stage `stage` among `total` CTAs.
///
/// `dedicated[s]` is the number of CTAs that stage `s` asks to have to itself, or 0. Stages that ask get
/// theirs from CTA 0 on, as far as one CTA is left for each group that comes after; those that do not ask
/// share all that remain. With fewer CTAs than groups, every CTA carries every stage, in order.
#[inline(always)]
pub fn share<const S: usize>(total: u32, dedicated: [u32; S], stage: usize) -> Share {
    // No loop is left early: it would not be unrolled in full, and the array would end up in local memory.
    let mut groups = 0;
    let mut shared = 0;
    for &ctas in &dedicated {
        groups += (ctas != 0) as u32;
        shared |= (ctas == 0) as u32;
    }
    groups += shared;
    if total < groups {
        return Share { first: 0, count: total };
    }
    let mut first = 0;
    let mut own = None;
    for (index, &ctas) in dedicated.iter().enumerate() {
        groups -= (ctas != 0) as u32;
        let available = total - first - groups;
        let count = if ctas < available { ctas } else { available };
        if index == stage && ctas != 0 {
            own = Some(Share { first, count });
        }
        first += count;
    }
    own.unwrap_or(Share { first, count: total - first })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares<const S: usize>(total: u32, dedicated: [u32; S]) -> [(u32, u32); S] {
        core::array::from_fn(|stage| {
            let Share { first, count } = share(total, dedicated, stage);
            (first, count)
        })
    }

    #[test]
    fn stages_that_ask_for_nothing_share_every_cta() {
        assert_eq!(shares(132, [0, 0]), [(0, 132), (0, 132)]);
    }

    #[test]
    fn a_dedicated_stage_leaves_the_rest_to_the_others() {
        assert_eq!(shares(132, [16, 0, 0]), [(0, 16), (16, 116), (16, 116)]);
        assert_eq!(shares(132, [0, 16]), [(16, 116), (0, 16)]);
    }

    #[test]
    fn every_group_gets_a_cta() {
        assert_eq!(shares(4, [100, 100, 0]), [(0, 2), (2, 1), (3, 1)]);
        assert_eq!(shares(3, [100, 100, 0]), [(0, 1), (1, 1), (2, 1)]);
    }

    #[test]
    fn too_few_ctas_carry_everything_in_turn() {
        assert_eq!(shares(1, [4, 0]), [(0, 1), (0, 1)]);
    }
}
