//! What the status of an HTTPRoute says about each of its parents.

use super::attach::Attachment;
use super::route::CompiledRoute;
use super::{Built, status};
use crate::Options;
use oxigress_objects::gateway::HttpRoute;
use oxigress_objects::gateway_status::{Condition, Content, ParentStatus};
use oxigress_objects::{Key, Kind};

/// Notes the status of a route at each of its parents.
pub fn put_status(
    options: &Options,
    key: &Key,
    route: &HttpRoute,
    attached: &[Attachment<'_>],
    rules: &CompiledRoute,
    built: &mut Built,
) {
    let parents = attached.iter().map(|attachment| {
        let mut conditions = Vec::new();
        match (&attachment.refusal, &rules.invalid) {
            (Some(refusal), _) => conditions.push(refusal.clone()),
            (None, Some(invalid)) if rules.rules.is_empty() => {
                conditions.push(Condition::no("Accepted", "UnsupportedValue", invalid.clone()));
            }
            (None, Some(invalid)) => {
                conditions.push(status::accepted());
                conditions.push(Condition {
                    name: "PartiallyInvalid",
                    holds: true,
                    reason: "UnsupportedValue",
                    message: format!("Dropped Rule: {invalid}"),
                });
            }
            (None, None) => conditions.push(status::accepted()),
        }
        let resolved = || Condition::yes("ResolvedRefs", "ResolvedRefs");
        conditions.push(rules.unresolved.clone().unwrap_or_else(resolved));
        ParentStatus { parent: attachment.parent.clone(), conditions }
    });
    let controller = options.gateway_controller_name.clone();
    let content = Content::Route { controller, parents: parents.collect() };
    status::put(Kind::HTTPRoute, key, route.meta.generation, content, built);
}
