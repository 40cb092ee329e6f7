//! Bounds of the histograms.
//!
//! Units:   times in seconds where people write them, in milliseconds where they are compared: nginx's clock
//!          has no finer ones. Sizes in bytes.
//! Errors:  [`InvalidBuckets`] names the remedy; a cell has room for as many buckets as the defaults have.

use std::fmt;

/// Most bounds of times: as many as the reference's default has. `+Inf` comes on top.
pub const MAX_TIME_BOUNDS: usize = 11;
/// Most bounds of `request_size` and `response_size`.
pub const MAX_LENGTH_BOUNDS: usize = 10;
/// The most bounds of the histogram `bytes_sent`.
pub const MAX_SIZE_BOUNDS: usize = 7;

/// The bounds of all histograms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buckets {
    pub(super) time: Bounds,
    pub(super) length: Bounds,
    pub(super) size: Bounds,
}

impl Default for Buckets {
    /// The bounds of ingress-nginx's histograms.
    fn default() -> Self {
        let bounds = |bounds: &[f64], unit| Bounds::of(bounds, unit);
        Buckets {
            time: bounds(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0], 1e3),
            length: bounds(&[10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0], 1.0),
            size: bounds(&[1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7], 1.0),
        }
    }
}

/// Bounds that cannot be used, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidBuckets(String);

impl Buckets {
    /// With other bounds of times, in seconds, separated by commas.
    pub fn with_time(mut self, text: &str) -> Result<Self, InvalidBuckets> {
        self.time = Bounds::parse(text, MAX_TIME_BOUNDS, 1e3)?;
        Ok(self)
    }

    /// With other bounds of lengths, in bytes.
    pub fn with_length(mut self, text: &str) -> Result<Self, InvalidBuckets> {
        self.length = Bounds::parse(text, MAX_LENGTH_BOUNDS, 1.0)?;
        Ok(self)
    }

    /// With other bounds of sizes, in bytes.
    pub fn with_size(mut self, text: &str) -> Result<Self, InvalidBuckets> {
        self.size = Bounds::parse(text, MAX_SIZE_BOUNDS, 1.0)?;
        Ok(self)
    }
}

impl fmt::Display for Buckets {
    /// As the directive `ingress_metrics` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Buckets { time, length, size } = self;
        write!(f, "time={time} length={length} size={size}")
    }
}

/// The bounds of one histogram, growing; the last bucket, without one, comes after them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    bounds: [f64; MAX_TIME_BOUNDS],
    count: usize,
    /// The greatest whole number within each bucket; unused places hold the maximum.
    limits: [u64; MAX_TIME_BOUNDS],
}

impl Bounds {
    fn of(bounds: &[f64], unit: f64) -> Bounds {
        let mut all = Bounds {
            bounds: [0.0; MAX_TIME_BOUNDS],
            count: bounds.len().min(MAX_TIME_BOUNDS),
            limits: [u64::MAX; MAX_TIME_BOUNDS],
        };
        for ((limit, place), bound) in all.limits.iter_mut().zip(&mut all.bounds).zip(bounds) {
            *place = *bound;
            // 0.035 s times 1000 is a little more than 35 ms, 0.29 s a little less than 290 ms.
            *limit = (bound * unit + 1e-6) as u64;
        }
        all
    }

    pub(super) fn all(&self) -> &[f64] {
        self.bounds.get(..self.count).unwrap_or_default()
    }

    fn parse(text: &str, most: usize, unit: f64) -> Result<Bounds, InvalidBuckets> {
        let bounds: Vec<f64> = text
            .split(',')
            .map(|bound| bound.trim().parse().ok().filter(|b: &f64| b.is_finite() && *b > 0.0))
            .collect::<Option<_>>()
            .ok_or_else(|| {
                InvalidBuckets(format!("\"{text}\" is not numbers above 0, separated by commas"))
            })?;
        if bounds.len() > most {
            return Err(InvalidBuckets(format!(
                "{} bounds, and a histogram has room for {most}: leave out those you need least",
                bounds.len()
            )));
        }
        if !bounds.is_sorted_by(|a, b| a < b) {
            return Err(InvalidBuckets(format!("the bounds \"{text}\" do not grow: sort them")));
        }
        Ok(Bounds::of(&bounds, unit))
    }

    /// The bucket of a value, looked for from the smallest.
    #[inline]
    pub(super) fn bucket_from_below(&self, value: u64) -> usize {
        self.limits.iter().position(|limit| value <= *limit).unwrap_or(MAX_TIME_BOUNDS)
    }

    /// The same, looked for from the greatest: most requests are longer than 100 bytes.
    #[inline]
    pub(super) fn bucket_from_above(&self, value: u64) -> usize {
        self.limits.iter().rposition(|limit| value > *limit).map_or(0, |below| below + 1)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, bound) in self.all().iter().enumerate() {
            write!(f, "{}{bound}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let Buckets { time, length, size } = Buckets::default();
        for (milliseconds, bucket) in [(0, 0), (5, 0), (6, 1), (10, 1), (10_000, 10), (10_001, 11)]
        {
            assert_eq!(time.bucket_from_below(milliseconds), bucket, "{milliseconds}");
        }
        for (bytes, bucket) in [(0, 0), (10, 0), (11, 1), (100, 9), (101, 10), (u64::MAX - 1, 10)] {
            assert_eq!(length.bucket_from_above(bytes), bucket, "{bytes}");
            assert_eq!(length.bucket_from_below(bytes), bucket, "{bytes}");
        }
        assert_eq!(size.bucket_from_below(10_000_001), 7);
    }

    #[test]
    fn bounds_are_numbers_that_grow_and_fit() {
        let parse = |text: &str| Buckets::default().with_time(text);
        assert_eq!(parse("0.001, 0.29,1").unwrap().time.to_string(), "0.001,0.29,1");
        assert_eq!(parse("0.29").unwrap().time.limits[0], 290);
        assert_eq!(parse("0.0005,1").unwrap().time.limits[0], 0);
        for text in ["", "a", "1,", "0", "-1", "inf", "2,1", "1,1", "1;2"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let many: Vec<_> = (1..=12).map(|number| number.to_string()).collect();
        let error = parse(&many.join(",")).unwrap_err().to_string();
        assert!(error.contains("12") && error.contains("room for 11"), "{error}");
        assert!(parse(&many[..11].join(",")).is_ok());
        assert!(Buckets::default().with_size("1,2,3,4,5,6,7,8").is_err());
    }

    #[test]
    fn what_is_written_can_be_read() {
        let all = Buckets::default();
        let text = all.to_string();
        let value = |name| {
            text.split(' ').find_map(|pair: &str| pair.strip_prefix(name)).unwrap().to_owned()
        };
        let read = Buckets::default().with_time(&value("time=")).unwrap();
        let read = read.with_length(&value("length=")).unwrap().with_size(&value("size=")).unwrap();
        assert_eq!(read, all);
    }
}
