//! The pauses between attempts to reach somebody who does not answer.

use rustix::rand::{GetRandomFlags, getrandom};
use std::time::Duration;

/// The first pause of somebody that does not answer.
pub const SHORTEST: Duration = Duration::from_millis(800);
/// The longest pause between two tries.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Returns a random factor from 0.75 to 1 for a pause, so that several who wait do not try at the same moment.
pub fn jitter() -> f64 {
    1.0 - random() / 4.0
}

/// Returns a random number from 0 to 1.
pub fn random() -> f64 {
    let mut byte = [0];
    // Without a random byte all pauses are equal, which is no harm.
    let _ = getrandom(&mut byte, GetRandomFlags::NONBLOCK);
    f64::from(byte[0]) / 255.0
}
