//! The backend of a request: the one its rule names (the primary) or one of its alternatives.
//!
//! Shape:   decided once a request. The first of these that matches decides: the affinity cookie of the primary, those of
//!          the alternatives, headers, cookies, weights; within each of these the order of the alternatives.
//! Units:   a weight is so many of `weight_total` requests; weights of several alternatives add up.
//! Errors:  a pattern that is invalid or exceeds its budget selects the primary, whatever follows.
//! Source:  ingress-nginx's Lua balancer; any number of alternatives instead of one.

use super::cookie;
use super::pick::below;
use crate::model::MAX_ALTERNATIVES;
use crate::patterns::{Budget, NamespacePatterns};
use crate::record::{AffinityView, BackendView, SplitView};
use std::borrow::Cow;

/// The headers and cookies of a request, by which canary rules decide.
pub trait Request {
    /// The value of a header, in any case of letters; repeated ones joined by `, `.
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// The value of a cookie ([`cookie::value`]).
    fn cookie(&self, name: &[u8]) -> Option<&[u8]>;
}

/// The share of all requests.
const WHOLE: u64 = 1 << 32;

/// The backend of a request, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the alternative; `None`: the primary.
    pub place: Option<usize>,
    /// The reason for the choice.
    pub by: By,
}

/// The reason for a choice between a backend and its alternatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An affinity cookie that was set for one of them.
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

/// Chooses between a backend and its alternatives. An alternative that is `None` cannot serve and is skipped.
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
        match by_header_rule(&split, request, patterns, &mut budget) {
            Selection::Yes => by_header = by_header.or(Some(Some(place))),
            Selection::Primary => by_header = by_header.or(Some(None)),
            Selection::Never => {
                excluded_by = Some(By::Header);
                continue;
            }
            Selection::Nothing => match by_cookie_rule(&split, request) {
                Selection::Yes => by_cookie = by_cookie.or(Some(place)),
                Selection::Never => {
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
    match sum {
        0 => chosen(None, excluded_by.unwrap_or(By::Weight)),
        sum => by_weight(&ends, sum, random),
    }
}

/// The alternative whose part of the requests, which sum up to `sum`, holds the point that `random` gives.
fn by_weight(ends: &[u64], sum: u64, random: u64) -> Choice {
    // Parts that are more than the whole are cut down alike, and the primary gets nothing.
    let all = sum.max(WHOLE);
    let point = below(all, random);
    let place = ends.iter().position(|end| point < *end);
    let start = place.and_then(|place| place.checked_sub(1)).and_then(|before| ends.get(before));
    let end = place.and_then(|place| ends.get(place));
    let is_whole = start.is_none_or(|start| *start == 0) && end == Some(&all);
    Choice { place, by: if is_whole { By::Weight } else { By::Chance } }
}

/// The result of an alternative's rule.
enum Selection {
    /// The request goes to this alternative.
    Yes,
    /// The request does not go to this alternative.
    Never,
    /// The request goes to the primary, whatever other rules select.
    Primary,
    Nothing,
}

fn is_held(affinity: AffinityView<'_>, request: &impl Request) -> bool {
    let held = request.cookie(affinity.name()).and_then(cookie::split);
    held.is_some_and(|held| held.tag == affinity.tag())
}

fn by_header_rule(
    split: &SplitView<'_>,
    request: &impl Request,
    patterns: &NamespacePatterns<'_>,
    budget: &mut Budget,
) -> Selection {
    if split.header.is_empty() {
        return Selection::Nothing;
    }
    let Some(value) = request.header(split.header) else { return Selection::Nothing };
    if !split.header_value.is_empty() {
        return if *value == *split.header_value { Selection::Yes } else { Selection::Nothing };
    }
    if !split.header_pattern.is_empty() {
        return match patterns.is_match(split.header_pattern, &value, budget) {
            Some(true) => Selection::Yes,
            Some(false) => Selection::Nothing,
            None => Selection::Primary,
        };
    }
    always_or_never(&value)
}

fn by_cookie_rule(split: &SplitView<'_>, request: &impl Request) -> Selection {
    if split.cookie.is_empty() {
        return Selection::Nothing;
    }
    request.cookie(split.cookie).map_or(Selection::Nothing, always_or_never)
}

fn always_or_never(value: &[u8]) -> Selection {
    match value {
        b"always" => Selection::Yes,
        b"never" => Selection::Never,
        _ => Selection::Nothing,
    }
}

/// The share of an alternative. Rounded up, so that three thirds are the whole.
fn share(split: &SplitView<'_>) -> u64 {
    let total = u64::from(split.weight_total.max(100));
    (u64::from(split.weight).min(total) * WHOLE).div_ceil(total)
}

#[cfg(test)]
mod tests;
