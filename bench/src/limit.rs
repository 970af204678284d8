//! The arithmetic of what is reached: the limit of an operation, and how much of the possible overlap there is.

/// The time in µs that nothing can be faster than: what each rank has to do for itself, mostly a matrix product, or the bytes
/// on the wire at the link's rate, whichever is longer.
pub fn limit_us(alone_us: f64, wire_bytes: usize, link_gbps: Option<f64>) -> f64 {
    alone_us.max(link_gbps.map_or(0.0, |gbps| transfer_us(wire_bytes, gbps)))
}

/// The time in µs that so many bytes take at a rate in GB/s.
pub fn transfer_us(bytes: usize, gbps: f64) -> f64 {
    bytes as f64 / (gbps * 1e3)
}

/// How much of the time that overlap could save is saved: 0 is no faster than one after the other, 1 is the limit.
/// None where there is nothing to save.
pub fn overlap_efficiency(serial_us: f64, ours_us: f64, limit_us: f64) -> Option<f64> {
    (serial_us > limit_us).then(|| (serial_us - ours_us) / (serial_us - limit_us))
}

/// Of repeats: the median, and `(slowest − fastest) / median`.
///
/// # Panics
/// There are none.
pub fn median_and_spread(repeats: &[f64]) -> (f64, f64) {
    let mut sorted = repeats.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    (median, (sorted[sorted.len() - 1] - sorted[0]) / median)
}

/// The median of repeats, if all of them were measured: one that failed is NaN.
pub fn median_if_measured(repeats: &[f64]) -> Option<f64> {
    (!repeats.is_empty() && repeats.iter().all(|time| time.is_finite())).then(|| median_and_spread(repeats).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_product_and_wire_is_the_limit() {
        assert_eq!(limit_us(100.0, 370_000_000, Some(370.0)), 1000.0);
        assert_eq!(limit_us(2000.0, 370_000_000, Some(370.0)), 2000.0);
        assert_eq!(limit_us(100.0, 0, None), 100.0);
    }

    #[test]
    fn efficiency_runs_from_serial_to_the_limit() {
        assert_eq!(overlap_efficiency(150.0, 150.0, 100.0), Some(0.0));
        assert_eq!(overlap_efficiency(150.0, 110.0, 100.0), Some(0.8));
        assert_eq!(overlap_efficiency(150.0, 100.0, 100.0), Some(1.0));
        assert_eq!(overlap_efficiency(150.0, 175.0, 100.0), Some(-0.5));
        assert_eq!(overlap_efficiency(99.0, 98.0, 100.0), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median_and_spread(&[3.0, 1.0, 2.0]), (2.0, 1.0));
        assert_eq!(median_and_spread(&[4.0, 1.0, 3.0, 2.0]), (2.5, 1.2));
        assert_eq!(median_and_spread(&[7.0]), (7.0, 0.0));
    }

    #[test]
    fn what_failed_once_has_no_median() {
        assert_eq!(median_if_measured(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median_if_measured(&[3.0, f64::NAN, 2.0]), None);
        assert_eq!(median_if_measured(&[]), None);
    }
}
