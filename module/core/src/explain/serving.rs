//! Who serves an explained request: the backend, its alternatives, and which of its endpoints may get it.

use super::offline::Offline;
use super::{Alternative, Backend, Counted, Endpoint, ExplainedAnswer, text};
use crate::decision::{BackendReason, Decision, EndpointSet, Generation};
use crate::record::{BackendView, EndpointsView, Kind, Records, SettingsView, SplitView};

/// Most endpoints that are told of one backend.
const MAX_ENDPOINTS: usize = 1_000;

/// The backend of a decision, and what becomes of a request that goes on to it; `None`: nobody serves.
pub(super) fn backend<'g, R, C>(
    generation: &Offline<'_, R, C>,
    decision: &Decision<'g, Offline<'_, R, C>>,
    why: BackendReason,
) -> Option<(Backend, ExplainedAnswer)>
where
    R: Records<'g>,
    C: Fn(&[u8], usize) -> Option<Counted>,
{
    let id = decision.route.backend()?;
    let own = decision.route.rule.and_then(|rule| rule.backend());
    let primary = own.or_else(|| SettingsView::of(generation).default_backend())?;
    let view = |id| BackendView::new(generation.value(Kind::Backend, id).unwrap_or_default());
    let set = generation.endpoints(id).view;
    let counted = |place| (generation.counted)(id, place).unwrap_or_default();
    let endpoints = endpoints(set, counted);
    let eligible = endpoints.iter().filter(|endpoint| endpoint.eligible).count();
    let more_endpoints = set.len().saturating_sub(MAX_ENDPOINTS);
    let outcome = match eligible + more_endpoints {
        // As nginx answers where no attempt can be made.
        0 if (0..set.len()).any(|place| is_full(set, counted(place))) => {
            super::status(503, "every healthy endpoint is at its limit")
        }
        0 => super::status(502, "every endpoint is ejected after failures"),
        count => ExplainedAnswer {
            why: match count {
                1 => "its one endpoint answers".into(),
                count => format!("one of {count} endpoints answers"),
            },
            ..ExplainedAnswer::default()
        },
    };
    let backend = Backend {
        id: text(id),
        why: why.text().into(),
        algorithm: view(id).algorithm(),
        affinity_cookie: view(id).affinity().map(|affinity| text(affinity.name())),
        hash_key: view(id).hash_key().map(text),
        alternatives: alternatives(generation, view(primary)),
        endpoints,
        more_endpoints,
    };
    Some((backend, outcome))
}

fn alternatives<'g, G: Generation<'g>>(
    generation: &G,
    primary: BackendView<'g>,
) -> Vec<Alternative> {
    let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| text(bytes));
    let all = primary.alternatives().map(|id| {
        let view = BackendView::new(generation.value(Kind::Backend, id).unwrap_or_default());
        let split = view.split();
        let number = |of: fn(&SplitView<'_>) -> u32| split.as_ref().map_or(0, of);
        Alternative {
            id: text(id),
            weight: number(|split| split.weight),
            weight_total: number(|split| split.weight_total.max(100)),
            header: split.as_ref().and_then(|split| some(split.header)),
            cookie: split.as_ref().and_then(|split| some(split.cookie)),
            has_endpoints: !generation.endpoints(id).is_empty(),
        }
    });
    all.collect()
}

fn endpoints(set: EndpointsView<'_>, counted: impl Fn(usize) -> Counted) -> Vec<Endpoint> {
    let is_panic = has_too_many_failing(set, &counted);
    let told = set.iter().take(MAX_ENDPOINTS).enumerate().map(|(place, endpoint)| {
        let count @ Counted { in_flight, ejected_ms } = counted(place);
        let is_failing = set.ejection().is_some() && ejected_ms > 0;
        let (eligible, why) = match () {
            () if is_full(set, count) => {
                (false, Some(format!("busy: it has {}, its limit", counted_requests(in_flight))))
            }
            () if set.is_draining() && endpoint.is_draining() => {
                (false, Some("draining: used only if the others failed".into()))
            }
            () if is_failing && !is_panic => {
                (false, Some(format!("failing: ejected for {ejected_ms} ms")))
            }
            () if is_failing => {
                (true, Some("failing, but used: too many endpoints are failing".into()))
            }
            () if endpoint.is_draining() => {
                (true, Some("draining, but used: all are draining".into()))
            }
            () => (true, None),
        };
        let address = endpoint.socket_address().to_string();
        Endpoint { address, weight: endpoint.weight(), eligible, why }
    });
    told.collect()
}

fn counted_requests(number: u32) -> String {
    crate::text::count(number as usize, "request")
}

fn is_full(set: EndpointsView<'_>, counted: Counted) -> bool {
    set.max_in_flight() > 0 && counted.in_flight >= set.max_in_flight()
}

/// So many endpoints are left out that the rest could not bear it: then none is.
fn has_too_many_failing(set: EndpointsView<'_>, counted: &impl Fn(usize) -> Counted) -> bool {
    let percent = set.ejection().map_or(0, |ejection| usize::from(ejection.panic_percent));
    let left = (0..set.len()).filter(|place| counted(*place).ejected_ms == 0).count();
    left * 100 < percent * set.len()
}
