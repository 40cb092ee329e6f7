//! Values as nginx reads them: sizes, times, switches; and what is left out.
//!
//! Source:  ngx_parse_offset, ngx_parse_time, ngx_conf_set_flag_slot.

use crate::annotation::proxying;
use oxigress_settings::grammar::directives::Directive;

/// What a text says something about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// One location.
    Location {
        /// The Ingress has a rewrite-target, whose pattern would have to match the new path.
        has_rewrite: bool,
    },
    /// Locations of others, whose own steps come first.
    EveryLocation,
    /// A server, or an auth subrequest.
    Elsewhere,
}

/// A directive that is not carried out.
#[derive(Debug, PartialEq, Eq)]
pub struct Left<'d> {
    /// The directive that is left out.
    pub directive: &'d Directive,
    /// Why it is not carried out; `None`: it is in no dialect.
    pub why: Option<String>,
    /// What is lost when the directive is left out.
    pub loss: Loss,
}

impl<'d> Left<'d> {
    /// A directive that could not be read.
    pub(super) fn of(directive: &'d Directive, not: Not) -> Self {
        let (why, loss) = match not {
            Not::Known => (None, Loss::AsNamed),
            Not::Possible(why) => (Some(why), Loss::AsNamed),
            Not::Needed(why) => (Some(why.to_owned()), Loss::Nothing),
            Not::Open(why) => (Some(why), Loss::Protection),
        };
        Left { directive, why, loss }
    }

    /// Why it is not carried out, in words.
    pub fn reason(&self) -> &str {
        self.why.as_deref().unwrap_or("this directive is not supported in snippets")
    }
}

/// What is lost where a directive is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The directive changes nothing here.
    Nothing,
    /// Its name and arguments tell whether it may protect.
    AsNamed,
    /// It keeps something of a client's out.
    Protection,
}

/// Why a directive is not carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Not {
    /// It is not in the dialect.
    Known,
    /// Policies have no setting for it.
    Possible(String),
    /// It changes nothing here.
    Needed(&'static str),
    /// Policies cannot say it, and without it something of the client's passes.
    Open(String),
}

impl<E: std::fmt::Display> From<E> for Not {
    fn from(why: E) -> Self {
        Not::Possible(why.to_string())
    }
}

pub(super) type Result<T = ()> = std::result::Result<T, Not>;

pub(super) fn impossible<T>(why: impl Into<String>) -> Result<T> {
    Err(Not::Possible(why.into()))
}

/// Bytes: digits, and perhaps k, m or g.
pub fn size(text: &str) -> Result<u64> {
    let is_nginx_s = !text.ends_with(['b', 'B']);
    let bytes = proxying::size(text, 0, i64::MAX as u64).filter(|_| is_nginx_s);
    bytes.map_or_else(|| impossible(format!("{text:?} is no size such as 8m")), Ok)
}

/// Reads `on` or `off`.
pub fn flag(text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => impossible(format!("{text:?} is neither on nor off")),
    }
}

/// A time in milliseconds, of 68 years at most.
pub fn millis(text: &str) -> Result<u64> {
    let time = parse_millis(text).filter(|millis| *millis <= i32::MAX as u64 * 1_000);
    time.map_or_else(|| impossible(format!("{text:?} is no time such as 60s or 1m30s")), Ok)
}

/// Numbers with units, larger units first; one without a unit is seconds.
fn parse_millis(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 9] = [
        ("y", 365 * 24 * 3_600_000),
        ("M", 30 * 24 * 3_600_000),
        ("w", 7 * 24 * 3_600_000),
        ("d", 24 * 3_600_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("", 1_000),
        ("ms", 1),
    ];
    let (mut rest, mut sum, mut least) = (text, 0_u64, 0);
    while !rest.is_empty() || text.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let place = UNITS.iter().skip(least).position(|(name, _)| *name == unit)? + least;
        let (_, each) = UNITS.get(place)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*each)?)?;
        least = place + 1;
        rest = after.trim_start_matches(' ');
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nginx_s() {
        for (text, expected) in [
            ("60", 60_000),
            ("60s", 60_000),
            ("1m30s", 90_000),
            ("1h 30m", 5_400_000),
            ("500ms", 500),
            ("1M", 2_592_000_000),
            ("1d", 86_400_000),
            ("0", 0),
        ] {
            assert_eq!(parse_millis(text), Some(expected), "{text}");
        }
        for text in ["", "s", "-1", "1x", "30s1m", "1s1s", "1.5s", " 1", "9999999999999999999y"] {
            assert_eq!(parse_millis(text), None, "{text}");
        }
        assert!(millis("69y").is_err() && millis("60y").is_ok());
    }

    #[test]
    fn sizes_and_switches_are_nginx_s() {
        assert_eq!((size("8k"), size("1M"), size("0")), (Ok(8_192), Ok(1 << 20), Ok(0)));
        assert!(size("8kb").is_err() && size("7b").is_err() && size("").is_err());
        assert_eq!((flag("on"), flag("OFF")), (Ok(true), Ok(false)));
        assert!(flag("true").is_err());
    }
}
