//! Words: what symmetric memory holds that is loaded, stored and changed one at a time, and waited for.

use core::convert::identity;

use half::{bf16, f16};

use crate::element::Element;
#[cfg(target_arch = "nvptx64")]
use crate::ordering::{Ordering, Scope};
#[cfg(target_arch = "nvptx64")]
use crate::ptx;

/// What can be done to a word at once, giving what it was before.
///
/// A sum, a minimum or a maximum that is a NaN has all bits set but the sign: GPUs know no other as a result. An exchange keeps
/// all bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The sum with an operand; whole numbers wrap, and `f32` counts subnormal numbers as zeros.
    Add,
    /// The smaller of it and an operand; of a NaN and a number, the number.
    Min,
    /// The larger of it and an operand; of a NaN and a number, the number.
    Max,
    /// The bits that are set in it and in an operand.
    And,
    /// The bits that are set in it or in an operand.
    Or,
    /// The bits that are set in one of it and an operand.
    Xor,
    /// An operand in its place.
    Exchange,
}

/// A relation of what a word holds to what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Comparison {
    /// They are the same.
    Equal = 0,
    /// They differ.
    NotEqual = 1,
    /// The word's is smaller.
    Less = 2,
    /// The word's is not larger.
    AtMost = 3,
    /// The word's is larger.
    Greater = 4,
    /// The word's is not smaller.
    AtLeast = 5,
}

impl Comparison {
    /// All of them, in the order of their numbers.
    pub const ALL: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::AtMost,
        Comparison::Greater,
        Comparison::AtLeast,
    ];

    /// Whether it holds between what a word holds and what is waited for.
    #[inline(always)]
    pub fn holds<W: PartialOrd>(self, seen: W, wanted: W) -> bool {
        match self {
            Comparison::Equal => seen == wanted,
            Comparison::NotEqual => seen != wanted,
            Comparison::Less => seen < wanted,
            Comparison::AtMost => seen <= wanted,
            Comparison::Greater => seen > wanted,
            Comparison::AtLeast => seen >= wanted,
        }
    }
}

/// A word: `u32`, `i32`, `u64`, `i64`, `f32`, `f16` or `bf16`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of a word",
    note = "words are `u32`, `i32`, `u64`, `i64`, `f32`, `f16` and `bf16`"
)]
pub trait Word: Copy + PartialOrd + core::marker::Send + Sync + 'static {
    /// Bytes.
    const SIZE: u32 = size_of::<Self>() as u32;

    /// Its bits, in the low ones.
    fn to_bits(self) -> u64;

    /// The word of these bits.
    fn from_bits(bits: u64) -> Self;

    /// What a change makes of a word.
    #[doc(hidden)]
    fn changed(self, change: Change, operand: Self) -> Self;

    /// # Safety
    /// `address` must be that of such a word, aligned, in global memory.
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    unsafe fn load<O: Ordering, S: Scope>(address: u64) -> Self;

    /// # Safety
    /// As [`load`](Word::load).
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    unsafe fn store<O: Ordering, S: Scope>(address: u64, value: Self);

    /// # Safety
    /// As [`load`](Word::load).
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    unsafe fn change<O: Ordering, S: Scope>(address: u64, change: Change, operand: Self) -> Self;

    /// # Safety
    /// As [`load`](Word::load).
    #[cfg(target_arch = "nvptx64")]
    #[doc(hidden)]
    unsafe fn compare_exchange<O: Ordering, S: Scope>(address: u64, expected: Self, new: Self) -> Self;
}

/// A word that sums can be formed in.
#[diagnostic::on_unimplemented(message = "`{Self}` can't be added to a word in memory")]
pub trait Summand: Word {
    /// The number that adds up with this one to nothing.
    fn negated(self) -> Self;
}

/// A word that is a whole number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no whole number",
    note = "`u32`, `i32`, `u64` and `i64` have bits that can be set and cleared"
)]
pub trait Integer: Summand {}

/// The same on GPUs for all that is held in a register of this kind.
#[cfg(target_arch = "nvptx64")]
macro_rules! accesses {
    ($bits:ty: $load:ident, $store:ident, $compare:ident, |$address:ident, $change:ident, $operand:ident| $changed:expr) => {
        #[inline(always)]
        unsafe fn load<O: Ordering, S: Scope>(address: u64) -> Self {
            <Self as Word>::from_bits(unsafe { ptx::$load::<O, S>(address) } as u64)
        }
        #[inline(always)]
        unsafe fn store<O: Ordering, S: Scope>(address: u64, value: Self) {
            unsafe { ptx::$store::<O, S>(address, Word::to_bits(value) as $bits) }
        }
        #[inline(always)]
        unsafe fn change<O: Ordering, S: Scope>($address: u64, $change: Change, operand: Self) -> Self {
            let $operand = Word::to_bits(operand) as $bits;
            <Self as Word>::from_bits(unsafe { $changed } as u64)
        }
        #[inline(always)]
        unsafe fn compare_exchange<O: Ordering, S: Scope>(address: u64, expected: Self, new: Self) -> Self {
            let (expected, new) = (Word::to_bits(expected) as $bits, Word::to_bits(new) as $bits);
            <Self as Word>::from_bits(unsafe { ptx::$compare::<O, S>(address, expected, new) } as u64)
        }
    };
}

macro_rules! whole {
    ($($word:ty as $bits:ty: $load:ident, $store:ident, $add:ident, $min:ident, $max:ident, $and:ident, $or:ident, $xor:ident, $exchange:ident, $compare:ident;)+) => {
        $(impl Word for $word {
            #[inline(always)]
            fn to_bits(self) -> u64 {
                self as $bits as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $bits as $word
            }
            fn changed(self, change: Change, operand: Self) -> Self {
                match change {
                    Change::Add => self.wrapping_add(operand),
                    Change::Min => self.min(operand),
                    Change::Max => self.max(operand),
                    Change::And => self & operand,
                    Change::Or => self | operand,
                    Change::Xor => self ^ operand,
                    Change::Exchange => operand,
                }
            }
            #[cfg(target_arch = "nvptx64")]
            accesses!($bits: $load, $store, $compare, |address, change, operand| match change {
                Change::Add => ptx::$add::<O, S>(address, operand),
                Change::Min => ptx::$min::<O, S>(address, operand),
                Change::Max => ptx::$max::<O, S>(address, operand),
                Change::And => ptx::$and::<O, S>(address, operand),
                Change::Or => ptx::$or::<O, S>(address, operand),
                Change::Xor => ptx::$xor::<O, S>(address, operand),
                Change::Exchange => ptx::$exchange::<O, S>(address, operand),
            });
        }
        impl Summand for $word {
            #[inline(always)]
            fn negated(self) -> Self {
                self.wrapping_neg()
            }
        }
        impl Integer for $word {})+
    };
}
whole! {
    u32 as u32: load_b32, store_b32, add_u32, min_u32, max_u32, and_b32, or_b32, xor_b32, exchange_b32, compare_b32;
    i32 as u32: load_b32, store_b32, add_u32, min_s32, max_s32, and_b32, or_b32, xor_b32, exchange_b32, compare_b32;
    u64 as u64: load_b64, store_b64, add_u64, min_u64, max_u64, and_b64, or_b64, xor_b64, exchange_b64, compare_b64;
    i64 as u64: load_b64, store_b64, add_u64, min_s64, max_s64, and_b64, or_b64, xor_b64, exchange_b64, compare_b64;
}

/// Changes a word as no instruction can: what others do to it meanwhile is found by comparing. A turn is lost only to a change
/// that another thread has made, so that some thread always comes to an end, and all do once the others have.
///
/// # Safety
/// As [`load`](Word::load).
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
unsafe fn by_comparing<W: Word, O: Ordering, S: Scope>(address: u64, change: Change, operand: W) -> W {
    let mut before = unsafe { W::load::<crate::ordering::Relaxed, S>(address) };
    loop {
        let found = unsafe { W::compare_exchange::<O, S>(address, before, before.changed(change, operand)) };
        if found.to_bits() == before.to_bits() {
            return before;
        }
        before = found;
    }
}

/// What counts of a number where global memory's own adder takes it, and gives it: it knows no subnormal ones.
fn flushed(number: f32) -> f32 {
    if number.is_subnormal() { 0.0f32.copysign(number) } else { number }
}

macro_rules! floats {
    ($($word:ty as $bits:ty, $counts:path: $load:ident, $store:ident, $add:ident, $exchange:ident, $compare:ident;)+) => {
        $(impl Word for $word {
            #[inline(always)]
            fn to_bits(self) -> u64 {
                <$word>::to_bits(self) as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                <$word>::from_bits(bits as $bits)
            }
            fn changed(self, change: Change, operand: Self) -> Self {
                let or_operand = |takes: bool| if takes || self.is_nan() { operand } else { self };
                let changed: Self = match change {
                    Change::Add => {
                        let [held, more] = [self, operand].map(|number| $counts(Element::to_f32(number)));
                        Element::from_f32($counts(held + more))
                    }
                    Change::Min => or_operand(operand < self),
                    Change::Max => or_operand(operand > self),
                    Change::Exchange => return operand,
                    _ => unreachable!("only whole numbers have bits"),
                };
                if changed.is_nan() { <$word>::from_bits(<$bits>::MAX >> 1) } else { changed }
            }
            #[cfg(target_arch = "nvptx64")]
            accesses!($bits: $load, $store, $compare, |address, change, operand| match change {
                Change::Add => ptx::$add::<O, S>(address, operand),
                Change::Exchange => ptx::$exchange::<O, S>(address, operand),
                Change::Min | Change::Max => {
                    let operand = <Self as Word>::from_bits(operand as u64);
                    Word::to_bits(by_comparing::<Self, O, S>(address, change, operand)) as $bits
                }
                _ => unreachable!(),
            });
        }
        impl Summand for $word {
            #[inline(always)]
            fn negated(self) -> Self {
                <Self as Word>::from_bits(Word::to_bits(self) ^ 1 << (8 * <Self as Word>::SIZE - 1))
            }
        })+
    };
}
floats! {
    f32 as u32, flushed: load_b32, store_b32, add_f32, exchange_b32, compare_b32;
    f16 as u16, identity: load_b16, store_b16, add_f16, exchange_b16, compare_b16;
    bf16 as u16, identity: load_b16, store_b16, add_bf16, exchange_b16, compare_b16;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds the changes of one type of words against the NaN that GPUs make, from NaNs of both signs and with other bits.
    fn makes_one_nan<W: Summand + core::fmt::Debug>([infinite, one, one_nan]: [u64; 3]) {
        let sign = 1 << (8 * W::SIZE - 1);
        let after = |word: u64, change: Change, operand: u64| {
            W::from_bits(word).changed(change, W::from_bits(operand)).to_bits()
        };
        for nan in [infinite | 1, infinite | ((infinite ^ one_nan) / 2 + 1), one_nan]
            .into_iter()
            .flat_map(|nan| [nan, nan | sign])
        {
            for other in [one, nan, nan ^ sign, infinite, 0] {
                for [word, operand] in [[nan, other], [other, nan]] {
                    assert_eq!(after(word, Change::Add, operand), one_nan, "{word:#x} + {operand:#x}");
                    assert_eq!(after(word, Change::Exchange, operand), operand);
                    let number = if other & !sign > infinite { one_nan } else { other };
                    for change in [Change::Min, Change::Max] {
                        assert_eq!(after(word, change, operand), number, "{change:?} of {word:#x} and {operand:#x}");
                    }
                }
            }
            assert_eq!(W::from_bits(nan).negated().to_bits(), nan ^ sign);
        }
        assert_eq!(after(infinite, Change::Add, infinite | sign), one_nan);
        assert_eq!(after(infinite, Change::Add, one), infinite);
    }

    #[test]
    fn a_change_that_comes_to_no_number_makes_one_nan() {
        makes_one_nan::<f32>([0x7f80_0000, 0x3f80_0000, 0x7fff_ffff]);
        makes_one_nan::<f16>([0x7c00, 0x3c00, 0x7fff]);
        makes_one_nan::<bf16>([0x7f80, 0x3f80, 0x7fff]);
    }

    #[test]
    fn sums_of_f32_alone_flush_subnormal_numbers() {
        let sum = |word: f32, operand: f32| word.changed(Change::Add, operand).to_bits();
        let (least, large) = (f32::MIN_POSITIVE, f32::from_bits(0x007f_ffff));
        assert_eq!([sum(large, large), sum(-large, -large), sum(-large, 0.0)], [0, 1 << 31, 0]);
        assert_eq!([sum(least, -large), sum(-1.5 * least, least)], [least.to_bits(), 1 << 31]);
        assert_eq!((large.changed(Change::Min, least), large.changed(Change::Exchange, -large)), (large, -large));
        assert_eq!(f16::from_bits(1).changed(Change::Add, f16::from_bits(2)).to_bits(), 3);
        assert_eq!(bf16::from_bits(1).changed(Change::Add, bf16::from_bits(2)).to_bits(), 3);
    }
}
