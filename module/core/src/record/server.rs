//! A server's record: its rules, ordered so that one binary search finds the rule of a path.
//!
//! Layout: [`Header`], then an [`Entry`] for each rule, then for each rule the id of its policies, a [`RuleHead`], its path and its
//! body. A body is the [`Lengths`] of six texts (backend, namespace, ingress, service, port, path), then these texts; a rule
//! without a backend has length 0 there. After the body of a regular expression come the length (`u16`) and the bytes of its
//! *literal*: the text, in lower case, that every path it matches begins with. Kind, path and body in one piece are the rule's
//! *name*: the part that stays the same while only the policy changes.
//!
//! Exact rules come first, in byte order; then prefixes in *segment order*, where `/` sorts before every other byte, so that a
//! prefix stands directly before everything below it. `parent` is the nearest prefix rule that covers a prefix rule, [`NONE`]
//! if there is none. The rule of a path is then its predecessor in that order, or the first of the predecessor's parents that
//! covers the path: the cost does not grow with the number of segments that a client sends.
//!
//! Regular expressions come last, by their literals in byte order, those of one literal with the strongest last; `parent` is
//! then the rule before it, or for the first one of a literal the last one of the longest literal that is a prefix of it. The
//! only expressions that can match a path are the predecessor of the path among the literals and its parents: ten thousand
//! others cost nothing.
//!
//! Rules that take only some of the requests for their path stand behind all these ([`selection`]); the rule of the path has the
//! flag [`SELECTS`] then, and nobody else looks.

mod considered;
mod encode;
mod inspection;
mod matching;
mod order;
mod selection;
#[cfg(test)]
mod tests;
mod view;

pub use considered::{Considered, MatchResult};
pub use encode::encode_server;
pub use inspection::{NoParts, RequestParts};
pub use matching::MatchedRule;
pub use view::{RuleView, ServerView};

use super::definition::Record;
use crate::model::policy::PolicyId;
use crate::model::{HostPattern, PathPattern, Rule, Server};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of record that holds a host and its rules.
pub enum Servers {}

impl Record for Servers {
    type Key = HostPattern;
    type Value = Server;

    fn encode(_: &HostPattern, server: &Server) -> Option<Vec<u8>> {
        Some(encode_server(server))
    }

    /// Answers 503 to every request. Without a server a wildcard host or the default backend would answer in its place.
    fn closed() -> Option<Server> {
        let rule = PathPattern::prefix("/").ok().and_then(closed_rule);
        Some(Server::of(rule.into_iter().collect()))
    }
}

/// A rule whose requests are answered 503, because it names policies that do not exist.
pub fn closed_rule(path: PathPattern) -> Option<Rule> {
    Some(Rule {
        path,
        backend: None,
        origin: Default::default(),
        policy: Default::default(),
        policies: Some(PolicyId::parse("withheld").ok()?),
        selection: None,
    })
}

/// A rule without a parent; greater than any index, since a server has at most `MAX_RULES` rules.
const NONE: u16 = u16::MAX;

const TEXTS: usize = 6;

/// The lengths of a body's texts.
type Lengths = [U16; TEXTS];

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    rules: U32,
    exact: U32,
    regexes: U16,
    /// The rules with a [`crate::model::Selection`].
    selected: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    path_at: U32,
    path_bytes: U16,
    parent: U16,
    body_at: U32,
    body_bytes: U32,
}

/// Stands directly before the path.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RuleHead {
    /// The id of the policies stands before this head.
    policies_bytes: U16,
    /// The HTTPS redirect in the two lowest bits, then the flags below.
    policy: u8,
    /// 0 prefix, 1 exact, 2 regular expression.
    kind: u8,
}

/// The two lowest bits of the flags say whether plain requests are redirected to HTTPS.
const REDIRECT: u8 = 3;
const YIELDS: u8 = 4;
/// The path has rules for some of its requests, whose index stands behind the rule.
const SELECTS: u8 = 8;
/// No rule takes those requests for the path that none of these take.
const IS_EMPTY: u8 = 16;
const IS_STRICT: u8 = 32;
