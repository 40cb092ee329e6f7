//! The sessions of Gateways' listeners, and where they go.
//!
//! Shape:   flags; then each target: its weight, the lengths of the ids of its backend and its policies, both ids. No id of a
//!          backend: the share is closed.

use crate::model::{SessionPlace, SessionRoute, SessionTarget, SessionWay};
use crate::record::definition::Record;
use crate::record::flag_if;

const DECRYPTS: u8 = 1;
const IS_HTTP: u8 = 2;
const YIELDS: u8 = 4;

/// The kind of record that holds what is done with the sessions of a place.
pub enum Sessions {}

impl Record for Sessions {
    type Key = SessionPlace;
    type Value = SessionRoute;

    fn encode(_: &SessionPlace, route: &SessionRoute) -> Option<Vec<u8>> {
        let flags = flag_if(route.way == SessionWay::Decrypt, DECRYPTS)
            | flag_if(route.way == SessionWay::Http, IS_HTTP)
            | flag_if(route.yields, YIELDS);
        let mut bytes = vec![flags];
        for SessionTarget { weight, backend, policies } in &route.targets {
            let backend = backend.as_ref().map_or("", |id| id.as_str());
            let policies = policies.as_ref().map_or("", |id| id.as_str());
            bytes.extend(weight.to_le_bytes());
            // An id has 512 bytes at most.
            let length = |id: &str| u16::try_from(id.len()).unwrap_or_default().to_le_bytes();
            bytes.extend([length(backend), length(policies)].as_flattened());
            bytes.extend([backend.as_bytes(), policies.as_bytes()].concat());
        }
        Some(bytes)
    }

    /// One that closes: without it a less specific place, or HTTP, would take the sessions. It yields, as the record may have
    /// done: server names that Ingresses have in a more specific way are not the route's, and stay open.
    fn closed() -> Option<SessionRoute> {
        Some(SessionRoute { yields: true, ..SessionRoute::default() })
    }
}

/// Who takes one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenTarget<'g> {
    /// The id of the backend.
    pub backend: &'g [u8],
    /// The id of the policies that say how TLS is spoken to its endpoints; empty: it is not.
    pub policies: &'g [u8],
}

/// What is done with the sessions of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView<'g>(&'g [u8]);

impl<'g> SessionView<'g> {
    /// The view of a record's value.
    pub fn new(value: &'g [u8]) -> Self {
        SessionView(value)
    }

    /// Whether the sessions go to the targets as they come or decrypted, or are routed by their HTTP requests.
    pub fn way(self) -> SessionWay {
        match () {
            () if self.has(DECRYPTS) => SessionWay::Decrypt,
            () if self.has(IS_HTTP) => SessionWay::Http,
            () => SessionWay::Forward,
        }
    }

    /// A server of an Ingress that is more specific takes its server names.
    pub fn yields(self) -> bool {
        self.has(YIELDS)
    }

    /// Who takes one session; `None`: it is closed.
    pub fn choose(self, random: u64) -> Option<ChosenTarget<'g>> {
        let all: u64 = self.targets().map(|(weight, _)| u64::from(weight)).sum();
        let mut place = random.checked_rem(all)?;
        let mut targets = self.targets();
        let (_, chosen) = targets.find(|(weight, _)| {
            let is_it = place < u64::from(*weight);
            place = place.saturating_sub(u64::from(*weight));
            is_it
        })?;
        Some(chosen).filter(|target| !target.backend.is_empty())
    }

    fn targets(self) -> impl Iterator<Item = (u32, ChosenTarget<'g>)> {
        let mut rest = self.0.get(1..).unwrap_or_default();
        std::iter::from_fn(move || {
            let (weight, behind) = rest.split_first_chunk()?;
            let (of_backend, behind) = behind.split_first_chunk()?;
            let (of_policies, behind) = behind.split_first_chunk()?;
            let (backend, behind) =
                behind.split_at_checked(u16::from_le_bytes(*of_backend).into())?;
            let (policies, behind) =
                behind.split_at_checked(u16::from_le_bytes(*of_policies).into())?;
            rest = behind;
            Some((u32::from_le_bytes(*weight), ChosenTarget { backend, policies }))
        })
    }

    fn has(self, flag: u8) -> bool {
        self.0.first().is_some_and(|flags| flags & flag != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BackendId;
    use crate::model::policy::PolicyId;

    fn encoded(route: &SessionRoute) -> Vec<u8> {
        Sessions::encode(&SessionPlace::parse("tcp/1").unwrap(), route).unwrap()
    }

    #[test]
    fn sessions_are_shared_by_weight_and_a_share_without_a_backend_is_closed() {
        let target = |weight, id: &str| SessionTarget {
            weight,
            backend: BackendId::parse(id).ok(),
            policies: None,
        };
        let targets = vec![target(7, "a"), target(0, "never"), target(2, "bc"), target(1, "")];
        let bytes = encoded(&SessionRoute { targets, ..SessionRoute::default() });
        let view = SessionView::new(&bytes);
        let mut seen = [0_u32; 3];
        for step in 0..1_000_u64 {
            match view.choose(step).map(|target| target.backend) {
                Some(b"a") => seen[0] += 1,
                Some(b"bc") => seen[1] += 1,
                None => seen[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(
            seen.iter().zip([700, 200, 100]).all(|(n, share)| n.abs_diff(share) < 3),
            "{seen:?}"
        );
    }

    #[test]
    fn each_target_has_policies_of_its_own() {
        let target = |id: &str, policies: &str| SessionTarget {
            weight: 1,
            backend: BackendId::parse(id).ok(),
            policies: PolicyId::parse(policies).ok(),
        };
        let targets = vec![target("a", "long/policies"), target("b", ""), target("", "p")];
        let bytes = encoded(&SessionRoute { targets, ..SessionRoute::default() });
        let view = SessionView::new(&bytes);
        let chosen = |backend, policies| Some(ChosenTarget { backend, policies });
        assert_eq!(view.choose(0), chosen(&b"a"[..], b"long/policies"));
        assert_eq!(view.choose(1), chosen(&b"b"[..], b""));
        assert_eq!(view.choose(2), None);
    }

    #[test]
    fn what_is_withheld_or_damaged_is_closed() {
        let closed = encoded(&Sessions::closed().unwrap());
        for bytes in [
            &closed[..],
            b"",
            b"\0\x01\0\0\0",
            b"\0\x01\0\0\0\x05\0abc",
            b"\0\x01\0\0\0\x01\0\x05\0ab",
        ] {
            let view = SessionView::new(bytes);
            assert_eq!((view.choose(7), view.way()), (None, SessionWay::Forward));
        }
    }

    #[test]
    fn flags_are_read_as_they_were_written() {
        for way in [SessionWay::Forward, SessionWay::Decrypt, SessionWay::Http] {
            for yields in [false, true] {
                let bytes = encoded(&SessionRoute { way, yields, ..SessionRoute::default() });
                let view = SessionView::new(&bytes);
                assert_eq!((view.way(), view.yields()), (way, yields));
            }
        }
    }
}
