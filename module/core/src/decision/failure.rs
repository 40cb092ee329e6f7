//! Which backend answers in the place of a status that the policies of the rule name.
//!
//! nginx comes here for its own statuses and for those of endpoints, once for a request: what happens here is final, and so
//! is what the backend answers.

use super::{EndpointSet, Generation};
use crate::model::policy::Policies;
use crate::record::SettingsView;

/// A status that nginx would answer a request with.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The status that the endpoint or nginx answered.
    pub status: u16,
    /// ACCESS had let the request in.
    pub was_let_in: bool,
}

/// What becomes of a [`Failure`].
pub enum Replacement<'p, E> {
    /// The client gets the status, with nginx's own page.
    Keep,
    /// No backend is there to answer: the client gets the status, as the location of errors logs it.
    Nobody,
    /// This backend answers. It gets the request as it came, but for the path, which is `/`.
    Backend {
        /// The id of the backend that answers in its place.
        id: &'p [u8],
        /// The endpoints of that backend.
        endpoints: E,
    },
}

/// Decides who answers in the place of a status.
pub fn replace<'p, 'g: 'p, G: Generation<'g>>(
    generation: &G,
    policies: &'p Policies,
    failure: Failure,
) -> Replacement<'p, G::Endpoints> {
    if is_verdict(failure.status) && !failure.was_let_in {
        return Replacement::Keep;
    }
    let own = policies.errors.as_ref().and_then(|errors| errors.backend.as_ref());
    let id = match own {
        Some(id) => Some(id.as_str().as_bytes()),
        None => SettingsView::of(generation).default_backend(),
    };
    let Some(id) = id else { return Replacement::Keep };
    let endpoints = generation.endpoints(id);
    match endpoints.is_empty() {
        true => Replacement::Nobody,
        false => Replacement::Backend { id, endpoints },
    }
}

/// Who may come in and who not: an answer of its own, which nobody replaces.
fn is_verdict(status: u16) -> bool {
    matches!(status, 300..=399 | 400 | 401 | 403 | 421)
}

/// The headers that the backend must not get from the client. ACCESS takes from a request what it has looked at, and what only
/// the auth server may say; a request that it did not let in may not have been there.
pub fn withheld(policies: &Policies, failure: Failure) -> impl Iterator<Item = &[u8]> {
    let access = policies.access.as_ref().filter(|_| !failure.was_let_in);
    let password = access.and_then(|access| access.basic.as_ref()).map(|_| &b"authorization"[..]);
    let external = access.and_then(|access| access.external.as_ref());
    let answered = external.into_iter().flat_map(|external| &external.response_headers);
    password.into_iter().chain(answered.map(|name| name.as_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_refused_comes_to_no_other_backend() {
        let policies: Policies = serde_json::from_value(serde_json::json!({
            "errors": {"codes": [401, 503], "backend": "errors"},
        }))
        .unwrap();
        let records = crate::decision::tests::records(serde_json::json!({
            "backends": {"errors": {}},
            "endpoints": {"errors": [{"address": "10.0.0.1", "port": 1}]},
        }));
        let replaced = |status, was_let_in| {
            let failure = Failure { status, was_let_in };
            let generation = crate::decision::tests::generation(&records);
            matches!(replace(&generation, &policies, failure), Replacement::Backend { .. })
        };
        assert!(replaced(503, false) && replaced(503, true));
        assert!(!replaced(401, false), "a verdict of ours");
        assert!(replaced(401, true), "the endpoint's own");
    }

    #[test]
    fn what_access_takes_away_is_withheld_from_those_who_did_not_come_through_it() {
        let policies: Policies = serde_json::from_value(serde_json::json!({
            "access": {
                "basic": {"realm": "shop", "users": ""},
                "external": {
                    "to": {"backend": "auth", "host": "auth.test"},
                    "target": "/check",
                    "response_headers": ["X-User"],
                },
            },
        }))
        .unwrap();
        let names = |was_let_in| {
            let failure = Failure { status: 503, was_let_in };
            withheld(&policies, failure).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(names(false), [&b"authorization"[..], b"X-User"]);
        assert!(names(true).is_empty());
    }
}
