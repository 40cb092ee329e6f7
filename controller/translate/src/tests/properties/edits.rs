//! Routes that change while Gateways stay: what is built again of them alone equals what is built from scratch.

use super::check::check_increments;
use super::{Step, cases, gateways, mode, seen};
use proptest::collection::vec;
use proptest::prelude::*;

/// Mostly a route of requests, sometimes another object.
fn edit() -> impl Strategy<Value = Step> {
    let all = prop_oneof![
        16 => gateways::request_route().boxed(),
        2 => seen().boxed(),
        1 => gateways::seen().boxed(),
        1 => gateways::named_policy().boxed(),
    ];
    all.prop_map(Step::Seen)
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn routes_built_again_alone_equal_from_scratch(
        mode in mode(),
        gateways in vec(gateways::our_gateway(), 1..4),
        edits in vec(vec(edit(), 1..3), 1..40),
    ) {
        let frame = [gateways::our_class()].into_iter().chain(gateways).map(Step::Seen);
        let steps = [frame.collect()].into_iter().chain(edits).collect();
        check_increments(mode, false, steps)?;
    }
}
