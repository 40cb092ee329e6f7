//! One of several endpoints.
//!
//! An attempt never gets an endpoint that this request has tried already: where the reference may ask a
//! dead endpoint three times, a retry here goes to another one or ends.

use crate::record::{EndpointView, EndpointsView};

/// An endpoint a request has tried: address, port and family.
pub type Identity = [u8; 19];

/// The next endpoint in turn, beginning at `turn`, that is not among `tried`; `None` when none is left.
///
/// Cost: one step per endpoint skipped, and only a retry skips.
pub fn round_robin<'g>(
    endpoints: EndpointsView<'g>,
    turn: u64,
    tried: &[Identity],
) -> Option<EndpointView<'g>> {
    let count = endpoints.len();
    let start = usize::try_from(turn.checked_rem(count as u64)?).ok()?;
    let in_turn = (start..count).chain(0..start);
    in_turn.filter_map(|index| endpoints.get(index)).find(|e| !tried.contains(e.identity()))
}

/// How many endpoints are not among `tried`: how many attempts are left.
#[inline]
pub fn untried(endpoints: EndpointsView<'_>, tried: &[Identity]) -> usize {
    if tried.is_empty() {
        return endpoints.len();
    }
    endpoints.iter().filter(|endpoint| !tried.contains(endpoint.identity())).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Endpoint, EndpointSet};
    use crate::record::encode_endpoints;

    fn endpoints(count: u8) -> Vec<u8> {
        let all = (0..count).map(|n| Endpoint::new([10, 0, 0, n].into(), 80.try_into().unwrap()));
        encode_endpoints(&EndpointSet::new(all).unwrap())
    }

    #[test]
    fn each_endpoint_has_its_turn() {
        let value = endpoints(3);
        let view = EndpointsView::new(&value);
        let names: Vec<_> =
            (5..9).map(|turn| round_robin(view, turn, &[]).unwrap().name().to_vec()).collect();
        assert_eq!(names, [b"10.0.0.2:80", b"10.0.0.0:80", b"10.0.0.1:80", b"10.0.0.2:80"]);
    }

    #[test]
    fn a_retry_skips_what_was_tried_until_nothing_is_left() {
        let value = endpoints(3);
        let view = EndpointsView::new(&value);
        let mut tried = Vec::new();
        while let Some(next) = round_robin(view, 7, &tried) {
            assert!(!tried.contains(next.identity()));
            tried.push(*next.identity());
            assert_eq!(untried(view, &tried), 3 - tried.len());
        }
        assert_eq!(tried.len(), 3);
    }

    #[test]
    fn no_endpoints_is_no_answer() {
        assert!(round_robin(EndpointsView::new(&endpoints(0)), 3, &[]).is_none());
        assert!(round_robin(EndpointsView::new(&[]), 3, &[]).is_none());
    }
}
