//! Dates of headers.
//!
//! Source:  RFC 9110 §5.6.7.

use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999: a later one has no such form.
const LAST: u64 = 253_402_300_799;

/// The date so many seconds after another time, or before it, as `offset` says in digits; `None`: it says no number.
pub fn after(seconds: u64, offset: &[u8]) -> Option<String> {
    let offset: i64 = str::from_utf8(offset).ok()?.parse().ok()?;
    let at = seconds.saturating_add_signed(offset).min(LAST);
    Some(httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_lie_before_and_after() {
        for (offset, expected) in [
            ("0", Some("Sun, 09 Sep 2001 01:46:40 GMT")),
            ("3600", Some("Sun, 09 Sep 2001 02:46:40 GMT")),
            ("-1", Some("Sun, 09 Sep 2001 01:46:39 GMT")),
            ("-2000000000", Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            ("9223372036854775807", Some("Fri, 31 Dec 9999 23:59:59 GMT")),
            ("", None),
            ("1h", None),
        ] {
            let found = after(1_000_000_000, offset.as_bytes());
            assert_eq!(found.as_deref(), expected, "{offset}");
        }
    }
}
