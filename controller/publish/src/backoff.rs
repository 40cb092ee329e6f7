//! When to try again.

use oxigress_net::pause::{LONGEST, SHORTEST, jitter};
use std::time::Duration;

/// Pauses after failures: short while nginx starts, then from 0.8 to 30 s with jitter.
#[derive(Default)]
pub struct Backoff {
    failures: u32,
}

/// The pause between the first tries.
pub const QUICK: Duration = Duration::from_millis(20);
/// 2 s of quick tries.
const QUICK_TRIES: u32 = 100;

impl Backoff {
    /// The last try had no answer.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Notes that nginx has answered.
    pub fn succeeded(&mut self) {
        if self.failures > 0 {
            tracing::info!("nginx answers");
        }
        self.failures = 0;
    }

    /// None came: the pause before the next try.
    pub fn failed(&mut self, why: &str) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            tracing::info!("waiting for nginx: {why}");
        }
        let Some(slow) = self.failures.checked_sub(QUICK_TRIES) else { return QUICK };
        let pause = SHORTEST.saturating_mul(1 << slow.min(10)).min(LONGEST);
        if slow.is_power_of_two() {
            tracing::warn!(
                "nginx does not answer ({why}); trying again at least every {LONGEST:?}"
            );
        }
        pause.mul_f64(jitter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..120).map(|_| backoff.failed("x")).collect();
        assert_eq!(pauses[0], QUICK);
        assert!(pauses[100] >= SHORTEST.mul_f64(0.7) && pauses[100] < Duration::from_secs(2));
        assert!(pauses[119] > LONGEST.mul_f64(0.7) && pauses[119] <= LONGEST);
    }
}
