//! Time that a run may take, spent on one measurement after the other.

use std::time::{Duration, Instant};

/// What is left for measurements.
pub struct Budget {
    until: Option<Instant>,
    begun: Instant,
    /// What the longest measurement took.
    longest: Duration,
}

impl Budget {
    /// Of a run that begins now.
    pub fn new(within: Option<Duration>) -> Self {
        let begun = Instant::now();
        Budget { until: within.map(|within| begun + within), begun, longest: Duration::ZERO }
    }

    /// Begins a measurement, if it would end in time should it take as long as the longest so far.
    pub fn begin(&mut self) -> bool {
        self.begun = Instant::now();
        self.until.is_none_or(|until| self.begun + self.longest < until)
    }

    /// Ends a measurement. How long it took.
    pub fn end(&mut self) -> Duration {
        let time = self.begun.elapsed();
        self.longest = self.longest.max(time);
        time
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_would_end_too_late_is_not_begun() {
        let mut budget = Budget::new(Some(Duration::from_millis(250)));
        assert!(budget.begin());
        thread::sleep(Duration::from_millis(150));
        assert!(budget.end() >= Duration::from_millis(150));
        assert!(!budget.begin(), "150 of 250 ms are over, and the next may take 150");
        assert!(Budget::new(Some(Duration::from_secs(60))).begin());
        assert!(!Budget::new(Some(Duration::ZERO)).begin());
        assert!(Budget::new(None).begin());
    }
}
