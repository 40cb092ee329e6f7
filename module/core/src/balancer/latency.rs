//! The moving average of an endpoint's latency, in one word, so that workers update it without a lock.
//!
//! Shape:   upper 32 bits: seconds as `f32`; lower 32 bits: when it was stored. 0: nothing yet.
//! Units:   times count 10 ms and wrap after 497 days.
//! Errors:  none: a sample that is no latency changes nothing, and no answer is NaN or infinite.
//! Source:  ingress-nginx's Lua balancer, ewma. What counts as a sample is the caller's.

/// An average loses all but 1/e of its value in this time, in units of 10 ms: 10 s.
const DECAY: f32 = 1_000.0;
/// An hour: longer than any timeout that makes sense, and far from where arithmetic overflows.
const LONGEST: f32 = 3_600.0;

/// The average in seconds, decayed to `now`; 0 if nothing is known.
#[inline]
pub fn average(bits: u64, now: u32) -> f32 {
    let (seconds, stored) = unpack(bits);
    seconds * keep(stored, now)
}

/// The average with another sample.
pub fn update(bits: u64, now: u32, sample_seconds: f32) -> u64 {
    if !sample_seconds.is_finite() || sample_seconds < 0.0 {
        return bits;
    }
    if bits == 0 {
        return pack(sample_seconds, now);
    }
    let (seconds, stored) = unpack(bits);
    if is_before(now, stored) {
        // Another worker's clock is ahead: its time is kept, or the next decay would count twice.
        return bits;
    }
    let keep = keep(stored, now);
    pack(seconds * keep + sample_seconds * (1.0 - keep), now)
}

/// The average a new endpoint begins with: the mean of the others'. No mean: nothing.
pub fn seed(mean_seconds: f32, now: u32) -> u64 {
    if mean_seconds.is_finite() && mean_seconds > 0.0 { pack(mean_seconds, now) } else { 0 }
}

/// The part of the stored value that is left.
#[inline]
fn keep(stored: u32, now: u32) -> f32 {
    if is_before(now, stored) {
        return 1.0;
    }
    (-(now.wrapping_sub(stored) as f32) / DECAY).exp()
}

/// A worker reads its clock once per turn of its event loop, so another may have stored a later time.
#[inline]
fn is_before(now: u32, stored: u32) -> bool {
    now.wrapping_sub(stored) > u32::MAX / 2
}

// A latency of 0 means less than nginx's clock of milliseconds can resolve. It is known, so not all bits are 0.
fn pack(seconds: f32, now: u32) -> u64 {
    let seconds = seconds.clamp(f32::MIN_POSITIVE, LONGEST);
    u64::from(seconds.to_bits()) << 32 | u64::from(now)
}

// Damaged bits count as nothing known.
#[inline]
fn unpack(bits: u64) -> (f32, u32) {
    let seconds = f32::from_bits((bits >> 32) as u32);
    let is_latency = (0.0..=LONGEST).contains(&seconds);
    (if is_latency { seconds } else { 0.0 }, bits as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f32, b: f32) -> bool {
        (a - b).abs() <= 1e-4 * a.abs().max(b.abs())
    }

    #[test]
    fn the_first_sample_is_the_average() {
        assert!(close(average(update(0, 77, 0.25), 77), 0.25));
        assert_eq!(average(0, 77), 0.0);
    }

    #[test]
    fn a_sample_after_ten_seconds_counts_for_all_but_one_in_e() {
        let old = update(0, 0, 1.0);
        let w = (-1.0f32).exp();
        assert!(close(average(update(old, 1_000, 3.0), 1_000), w + 3.0 * (1.0 - w)));
        assert!(close(average(old, 1_000), w));
        assert!(close(average(old, 2_000), w * w));
    }

    #[test]
    fn the_clock_may_wrap_and_run_backwards() {
        let old = update(0, u32::MAX - 499, 1.0);
        assert!(close(average(old, 500), (-1.0f32).exp()));
        assert_eq!(average(old, u32::MAX - 600), 1.0);
        assert_eq!(update(old, u32::MAX - 600, 9.0), old);
    }

    #[test]
    fn a_latency_of_zero_is_known() {
        let bits = update(0, 0, 0.0);
        assert_ne!(bits, 0);
        assert!(average(bits, 0) > 0.0);
    }

    #[test]
    fn a_new_endpoint_begins_with_the_mean() {
        assert!(close(average(seed(0.2, 5), 5), 0.2));
        for none in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(seed(none, 5), 0);
        }
    }

    proptest! {
        #[test]
        fn an_average_is_a_number_between_its_samples(
            bits: u64,
            samples in prop::collection::vec((any::<u32>(), any::<f32>()), 1..20),
        ) {
            let mut bits = bits;
            for (now, sample) in samples {
                bits = update(bits, now, sample);
                let average = average(bits, now);
                prop_assert!((0.0..=LONGEST).contains(&average), "{average}");
            }
        }
    }
}
