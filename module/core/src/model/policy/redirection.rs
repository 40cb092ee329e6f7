//! Where requests are sent, and which path endpoints see, in the words of the Gateway API.
//!
//! Source:  HTTPRequestRedirectFilter, HTTPURLRewriteFilter: no text has variables.

use super::HeaderValue;
use serde::{Deserialize, Serialize};

crate::model::object::objects!(RedirectTo);

/// A redirect that keeps what it does not name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RedirectTo {
    /// The status of the redirect, 300 to 308.
    #[serde(deserialize_with = "super::checked_redirect_code")]
    pub code: u16,
    /// The scheme, `http` or `https`.
    pub scheme: HeaderValue,
    /// The host; absent: the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HeaderValue>,
    /// The port; absent: that of the scheme, which is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The path; absent: the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathEdit>,
}

/// A change of the path; the query stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathEdit {
    /// This path replaces all of it.
    Full(HeaderValue),
    /// A text replaces the prefix that the rule matches.
    Prefix {
        /// The prefix, without a slash at its end.
        from: HeaderValue,
        /// The text in its place.
        to: HeaderValue,
    },
}
