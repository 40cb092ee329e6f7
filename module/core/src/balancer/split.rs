//! Which backend takes a request: the one its rule names or one of that one's alternatives.
//!
//! Shape:   decided once a request. What stands first decides: the affinity cookie of the primary, those of
//!          the alternatives, headers, cookies, weights; within each of these the order of the alternatives.
//! Units:   a weight is so many of `weight_total` requests; weights of several alternatives add up.
//! Errors:  a pattern that is none, or costs too much, is the primary's, whatever follows.
//! Source:  ingress-nginx's Lua balancer; any number of alternatives instead of one.

use super::cookie;
use super::pick::below;
use crate::model::MAX_ALTERNATIVES;
use crate::patterns::{Budget, NamespacePatterns};
use crate::record::{AffinityView, BackendView, SplitView};
use std::borrow::Cow;

/// What rules look at.
pub trait Request {
    /// The value of a header, in any case of letters; repeated ones joined by `, `.
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// The value of a cookie ([`cookie::value`]).
    fn cookie(&self, name: &[u8]) -> Option<&[u8]>;
}

/// All requests, as a share.
const WHOLE: u64 = 1 << 32;

/// Who takes a request, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the alternative; `None`: the primary.
    pub place: Option<usize>,
    /// What decided.
    pub by: By,
}

/// What decides between a backend and its alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An affinity cookie that one of them gave out.
    Affinity,
    /// A header that an alternative names.
    Header,
    /// A cookie that an alternative names.
    Cookie,
    /// Weights that give all requests to one of them.
    Weight,
    /// Weights that share the requests, and chance.
    Chance,
}

/// Chooses between a backend and its alternatives. An alternative that is `None` cannot serve and takes nothing.
pub fn decide<'g>(
    primary: Option<AffinityView<'_>>,
    alternatives: impl IntoIterator<Item = Option<BackendView<'g>>>,
    request: &impl Request,
    patterns: &NamespacePatterns<'_>,
    random: u64,
) -> Choice {
    let chosen = |place, by| Choice { place, by };
    if primary.is_some_and(|affinity| is_held(affinity, request)) {
        return chosen(None, By::Affinity);
    }
    // The first rule that decides, of headers and of cookies; later alternatives may have a held cookie.
    let (mut by_header, mut by_cookie) = (None, None);
    // What took the last alternative out of the game.
    let mut excluded_by = None;
    // Where each alternative's part of the requests ends.
    let mut ends = [0u64; MAX_ALTERNATIVES];
    let mut sum = 0;
    let mut budget = Budget::OF_VALUES;
    for (place, (end, alternative)) in ends.iter_mut().zip(alternatives).enumerate() {
        *end = sum;
        let Some(alternative) = alternative else { continue };
        if alternative.affinity().is_some_and(|affinity| is_held(affinity, request)) {
            return chosen(Some(place), By::Affinity);
        }
        let Some(split) = alternative.split() else { continue };
        match header_says(&split, request, patterns, &mut budget) {
            Says::Yes => by_header = by_header.or(Some(Some(place))),
            Says::Primary => by_header = by_header.or(Some(None)),
            Says::Never => {
                excluded_by = Some(By::Header);
                continue;
            }
            Says::Nothing => match cookie_says(&split, request) {
                Says::Yes => by_cookie = by_cookie.or(Some(place)),
                Says::Never => {
                    excluded_by = Some(By::Cookie);
                    continue;
                }
                _ => {}
            },
        }
        sum += share(&split);
        *end = sum;
    }
    if let Some(decided) = by_header {
        return chosen(decided, By::Header);
    }
    if by_cookie.is_some() {
        return chosen(by_cookie, By::Cookie);
    }
    if sum == 0 {
        return chosen(None, excluded_by.unwrap_or(By::Weight));
    }
    // Parts that are more than the whole are cut down alike, and the primary gets nothing.
    let all = sum.max(WHOLE);
    let point = below(all, random);
    let place = ends.iter().position(|end| point < *end);
    let start = place.and_then(|place| place.checked_sub(1)).and_then(|before| ends.get(before));
    let end = place.and_then(|place| ends.get(place));
    let is_whole = start.is_none_or(|start| *start == 0) && end == Some(&all);
    chosen(place, if is_whole { By::Weight } else { By::Chance })
}

/// What a rule of an alternative says.
enum Says {
    /// This alternative.
    Yes,
    /// Not this alternative.
    Never,
    /// The primary, whatever else is said.
    Primary,
    Nothing,
}

fn is_held(affinity: AffinityView<'_>, request: &impl Request) -> bool {
    let held = request.cookie(affinity.name()).and_then(cookie::split);
    held.is_some_and(|held| held.tag == affinity.tag())
}

fn header_says(
    split: &SplitView<'_>,
    request: &impl Request,
    patterns: &NamespacePatterns<'_>,
    budget: &mut Budget,
) -> Says {
    if split.header.is_empty() {
        return Says::Nothing;
    }
    let Some(value) = request.header(split.header) else { return Says::Nothing };
    if !split.header_value.is_empty() {
        return if *value == *split.header_value { Says::Yes } else { Says::Nothing };
    }
    if !split.header_pattern.is_empty() {
        return match patterns.is_match(split.header_pattern, &value, budget) {
            Some(true) => Says::Yes,
            Some(false) => Says::Nothing,
            None => Says::Primary,
        };
    }
    always_or_never(&value)
}

fn cookie_says(split: &SplitView<'_>, request: &impl Request) -> Says {
    if split.cookie.is_empty() {
        return Says::Nothing;
    }
    request.cookie(split.cookie).map_or(Says::Nothing, always_or_never)
}

fn always_or_never(value: &[u8]) -> Says {
    match value {
        b"always" => Says::Yes,
        b"never" => Says::Never,
        _ => Says::Nothing,
    }
}

/// The share of an alternative. Rounded up, so that three thirds are the whole.
fn share(split: &SplitView<'_>) -> u64 {
    let total = u64::from(split.weight_total.max(100));
    (u64::from(split.weight).min(total) * WHOLE).div_ceil(total)
}

#[cfg(test)]
mod tests;
