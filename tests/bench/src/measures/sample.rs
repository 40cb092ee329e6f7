//! Times that were measured, and what is told of them.

use std::time::Duration;

/// Durations of one kind of event.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    sorted: Vec<Duration>,
}

impl FromIterator<Duration> for Sample {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        let mut sorted: Vec<_> = times.into_iter().collect();
        sorted.sort_unstable();
        Sample { sorted }
    }
}

impl Sample {
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest time that this share of all, from 0 to 1, does not exceed; zero of an empty sample.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Zero of an empty sample.
    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.sorted.len()).unwrap_or(u32::MAX);
        self.sorted.iter().sum::<Duration>().checked_div(count).unwrap_or_default()
    }

    pub fn max(&self) -> Duration {
        self.sorted.last().copied().unwrap_or_default()
    }
}

/// Milliseconds, or microseconds if they are few.
pub fn show(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 10.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_times() {
        let sample: Sample = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(sample.p50(), Duration::from_millis(50));
        assert_eq!(sample.quantile(0.99), Duration::from_millis(99));
        assert_eq!(sample.max(), Duration::from_millis(100));
        assert_eq!(sample.mean(), Duration::from_micros(50_500));
        assert_eq!(Sample::default().mean(), Duration::ZERO);
        assert_eq!(Sample::default().p50(), Duration::ZERO);
    }
}
