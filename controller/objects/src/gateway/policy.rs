//! Policies: what annotations of Ingresses say, for rules of routes.

use super::{HttpRouteFilter, HttpRouteRule, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// The API group of Policies.
pub const POLICY_GROUP: &str = "oxigress.io";

/// A Policy.
pub type Policy = Resource<PolicySpec>;

/// spec of a Policy: its fields have the names of annotations without their prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySpec {
    /// The values as annotations have them. What is no text, number or boolean stands here as JSON: no field takes it.
    pub fields: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<String, Value>::deserialize(from)?;
        let text = |value| match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        let fields = all.into_iter().filter_map(|(name, value)| Some((name, text(value)?)));
        Ok(PolicySpec { fields: fields.collect() })
    }
}

impl HttpRouteFilter {
    /// The Policy that it names, in the route's namespace.
    pub fn policy(&self) -> Option<&str> {
        let named = self.extension_ref.as_ref().filter(|_| self.r#type == "ExtensionRef")?;
        let is_policy = (&*named.group, &*named.kind) == (POLICY_GROUP, "Policy");
        is_policy.then_some(&*named.name)
    }
}

impl HttpRouteRule {
    /// The Policies that it names.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().filter_map(HttpRouteFilter::policy)
    }

    /// The Policy that holds for it: with several of them the rule is refused, whatever they say.
    pub fn policy(&self) -> Option<&str> {
        let mut named = self.policies();
        named.next().filter(|_| named.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_booleans_are_the_texts_of_annotations() {
        let spec = json!({"limit-rps": 5, "enable-cors": true, "auth-url": "http://a/", "satisfy": null,
            "custom-http-errors": [404]});
        let spec: PolicySpec = serde_json::from_value(spec).unwrap();
        let expected = [
            ("auth-url", "http://a/"),
            ("custom-http-errors", "[404]"),
            ("enable-cors", "true"),
            ("limit-rps", "5"),
        ];
        assert!(spec.fields.iter().map(|(name, text)| (&**name, &**text)).eq(expected));
    }

    #[test]
    fn a_filter_names_a_policy_by_group_and_kind() {
        let named = |kind: &str, group: &str| {
            let filter = json!({"type": "ExtensionRef",
                "extensionRef": {"group": group, "kind": kind, "name": "p"}});
            let filter: HttpRouteFilter = serde_json::from_value(filter).unwrap();
            filter.policy().map(str::to_owned)
        };
        assert_eq!(named("Policy", "oxigress.io").as_deref(), Some("p"));
        assert_eq!(named("Policy", "a.b").or(named("Other", "oxigress.io")), None);
    }
}
