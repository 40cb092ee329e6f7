//! What the variables of a text cost at most when it is expanded, on the event loop.
//!
//! Units:   microseconds of a processor for the worst request that nginx takes with its usual buffers of four times 8k, and
//!          100 header lines.
//! Errors:  what is over a bound is refused when it is read, so that all texts of a request take less than 5 ms: those of its
//!          policies [`MOST_OF_POLICIES`], the hash key of its backend, a text of its own, [`MOST_OF_TEXT`].
//! Source:  measured with nginx's loops on an AMD EPYC. A cookie that is not there, in 32 KB of cookies of one letter, or of
//!          its name but for the last letter: 15 to 90. A header of 64 letters among 100 that differ in the last: 4, and up to 6
//!          for joining 32 KB of equal ones. A parameter in 8 KB of `a&a&`: 4 to 10; nginx's own search for 64 letters takes
//!          800, so it is not used. A name or hash of a client's certificate of 16 KB: estimated. All others copy at most
//!          24 KB, which a request's budget of bytes bounds too.

use super::{Part, is_allowed};

/// Most variables and captures of one text.
pub const MOST_VARIABLES: usize = 64;
/// Most letters of the name of a parameter, cookie or header.
pub const MOST_LETTERS: usize = 64;
/// Most microseconds of one text: 10 cookies, 50 parameters, all 64 as headers.
pub const MOST_OF_TEXT: u32 = 1_000;
/// Most microseconds of all texts of one set of policies: 40 cookies, 200 parameters, 400 headers, 1,000 others.
pub const MOST_OF_POLICIES: u32 = 4_000;

/// What is looked for by name, and what finding it takes.
const SEARCHED: [(&str, u32); 4] =
    [("arg_", 20), ("cookie_", 100), ("http_", 10), ("ssl_client_", 40)];
/// What any other variable takes.
const OTHER: u32 = 4;

/// What expanding a text takes at most; an error names the bound that it is over, and the remedy.
pub fn of<'t>(parts: impl Iterator<Item = Part<'t>>) -> Result<u32, String> {
    let (mut count, mut sum) = (0, 0);
    for part in parts {
        sum += match part {
            // A `$` that begins no variable.
            Part::Literal(_) | Part::Variable(b"dollar") => continue,
            Part::Capture(_) => OTHER,
            Part::Variable(name) => of_variable(name)?,
        };
        count += 1;
        if count > MOST_VARIABLES {
            return Err(format!("more than {MOST_VARIABLES} variables in one text: use fewer"));
        }
    }
    match sum > MOST_OF_TEXT {
        true => Err(
            "variables that together take too long to look up in one text: use fewer cookies, parameters and headers"
                .to_owned(),
        ),
        false => Ok(sum),
    }
}

/// What expanding a part of a text takes that was read.
pub fn of_part(part: Part<'_>) -> u32 {
    match part {
        Part::Literal(_) => 0,
        Part::Capture(_) => OTHER,
        Part::Variable(name) => searched(name).map_or(OTHER, |(_, cost)| cost),
    }
}

/// What is looked for by name: the name, and what finding it takes.
fn searched(name: &[u8]) -> Option<(&[u8], u32)> {
    SEARCHED.iter().find_map(|(prefix, cost)| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix.as_bytes()).then_some((rest, *cost))
    })
}

fn of_variable(name: &[u8]) -> Result<u32, String> {
    match searched(name) {
        Some((rest, _)) if rest.len() > MOST_LETTERS => Err(format!(
            "a variable for a name of {} letters, at most {MOST_LETTERS} are taken",
            rest.len()
        )),
        Some((_, cost)) => Ok(cost),
        // One that users may not have is empty, where it is not refused.
        None if !is_allowed(name) => Ok(0),
        None => Ok(OTHER),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts;
    use super::*;

    fn cost(text: &str) -> Result<u32, String> {
        of(parts(text.as_bytes()))
    }

    #[test]
    fn what_people_write_is_far_below_the_bounds() {
        for (text, expected) in [
            ("", 0),
            ("no variables, 5 $", 0),
            ("https://$best_http_host/start?rd=$escaped_request_uri", 8),
            ("$proxy_add_x_forwarded_for", 4),
            ("$Cookie_session$http_authorization$1", 114),
            ("$ssl_client_s_dn;$arg_a", 60),
        ] {
            assert_eq!(cost(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_would_take_long_is_refused_with_a_remedy() {
        for (text, is_good, why) in [
            ("$host".repeat(64), true, ""),
            ("$host".repeat(65), false, "64 variables"),
            ("$1".repeat(65), false, "64 variables"),
            ("${dollar}".repeat(900), true, ""),
            ("$cookie_a.".repeat(10), true, ""),
            ("$cookie_a.".repeat(11), false, "fewer cookies"),
            ("$ARG_a.".repeat(51), false, "fewer cookies"),
            (format!("$arg_{}", "a".repeat(64)), true, ""),
            (format!("$arg_{}", "a".repeat(65)), false, "65 letters"),
            (format!("$http_{}", "a".repeat(65)), false, "65 letters"),
            (format!("$Cookie_{}", "a".repeat(65)), false, "65 letters"),
        ] {
            let found = cost(&text);
            assert_eq!(found.is_ok(), is_good, "{text}");
            assert!(found.err().unwrap_or_default().contains(why), "{text}");
        }
    }
}
