//! The status that is to stand, of the one that stands and of what is to be said.

use k8s_openapi::jiff::{Timestamp, Unit};
use oxigress_objects::Kind;
use oxigress_objects::gateway::{GROUP, ParentRef};
use oxigress_objects::gateway_status::{
    Addresses, Condition, Content, ListenerStatus, ParentStatus, Wanted,
};
use oxigress_objects::published::Address;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// The types of conditions that are ours: one that is not said any more goes.
const OURS: [&str; 7] = [
    "Accepted",
    "Programmed",
    "ResolvedRefs",
    "Conflicted",
    "PartiallyInvalid",
    "InsecureFrontendValidationMode",
    "PoliciesApplied",
];

/// Merges what this controller says into the status that the object has.
pub fn merge(
    kind: Kind,
    seen: &Value,
    wanted: Option<&Wanted>,
    addresses: &[Address],
    controller: &str,
) -> Value {
    let now = Timestamp::now().round(Unit::Second).unwrap_or_default().to_string();
    let mut status = seen.as_object().cloned().unwrap_or_default();
    let Some(Wanted { generation, content }) = wanted else {
        match kind {
            _ if seen.is_null() => return seen.clone(),
            Kind::BackendTLSPolicy => put_ours(&mut status, "ancestors", controller, Vec::new()),
            kind if kind.is_route() => put_ours(&mut status, "parents", controller, Vec::new()),
            _ => return seen.clone(),
        }
        return status.into();
    };
    let at = At { generation: *generation, now: &now };
    match content {
        Content::Class { conditions, features } => {
            put_conditions(&mut status, conditions, at);
            let features = features.iter().map(|name| json!({"name": name}));
            status.insert("supportedFeatures".into(), features.collect());
        }
        Content::Gateway { conditions, listeners, addresses: own, sets } => {
            put_conditions(&mut status, conditions, at);
            put_listeners(&mut status, listeners, at);
            status.insert("attachedListenerSets".into(), json!(sets));
            let ip = |ip: &IpAddr| json!({"type": "IPAddress", "value": ip});
            let addresses: Value = match own {
                Addresses::Shared => addresses.iter().map(address_of).collect(),
                Addresses::Own(own) => own.iter().map(ip).collect(),
            };
            status.insert("addresses".into(), addresses);
        }
        Content::ListenerSet { conditions, listeners } => {
            put_conditions(&mut status, conditions, at);
            put_listeners(&mut status, listeners, at);
        }
        Content::Route { controller, parents } => {
            let old = status.get("parents").cloned().unwrap_or_default();
            let ours = parents.iter();
            let ours = ours.map(|parent| parent_of(&old, "parentRef", controller, parent, at));
            put_ours(&mut status, "parents", controller, ours.collect());
        }
        Content::Policy { controller, ancestors } => {
            let old = status.get("ancestors").cloned().unwrap_or_default();
            let ours = ancestors.iter();
            let ours = ours.map(|one| parent_of(&old, "ancestorRef", controller, one, at));
            put_ours(&mut status, "ancestors", controller, ours.collect());
        }
    }
    status.into()
}

/// What a condition is about, and when it is said.
#[derive(Clone, Copy)]
struct At<'a> {
    generation: i64,
    now: &'a str,
}

fn put_conditions(status: &mut Map<String, Value>, conditions: &[Condition], at: At<'_>) {
    let old = status.remove("conditions").unwrap_or_default();
    status.insert("conditions".into(), conditions_of(&old, conditions, at));
}

fn put_listeners(status: &mut Map<String, Value>, listeners: &[ListenerStatus], at: At<'_>) {
    let old = status.remove("listeners").unwrap_or_default();
    let listeners = listeners.iter().map(|listener| listener_of(&old, listener, at));
    status.insert("listeners".into(), listeners.collect());
}

/// Those that are wanted, and those that others have written. The time of one whose status stays is that of before.
fn conditions_of(old: &Value, wanted: &[Condition], at: At<'_>) -> Value {
    let old = old.as_array().map(Vec::as_slice).unwrap_or_default();
    let find = |name: &str| old.iter().find(|condition| condition["type"] == name);
    let ours = wanted.iter().map(|condition| {
        let status = if condition.holds { "True" } else { "False" };
        let same = find(condition.name).filter(|old| old["status"] == status);
        let since = same.and_then(|old| old["lastTransitionTime"].as_str()).unwrap_or(at.now);
        json!({
            "type": condition.name,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": at.generation,
            "lastTransitionTime": since,
        })
    });
    let is_foreign = |condition: &&Value| !OURS.iter().any(|name| condition["type"] == *name);
    ours.chain(old.iter().filter(is_foreign).cloned()).collect()
}

fn address_of(address: &Address) -> Value {
    match address.ip.is_empty() {
        true => json!({"type": "Hostname", "value": address.hostname}),
        false => json!({"type": "IPAddress", "value": address.ip}),
    }
}

fn listener_of(old: &Value, listener: &ListenerStatus, at: At<'_>) -> Value {
    let old = old.as_array().map(Vec::as_slice).unwrap_or_default();
    let same = old.iter().find(|old| old["name"] == listener.name);
    let conditions = same.map(|old| old["conditions"].clone()).unwrap_or_default();
    let kinds = listener.kinds.iter().map(|kind| json!({"group": GROUP, "kind": kind.to_string()}));
    json!({
        "name": listener.name,
        "supportedKinds": kinds.collect::<Value>(),
        "attachedRoutes": listener.attached,
        "conditions": conditions_of(&conditions, &listener.conditions, at),
    })
}

fn parent_ref(parent: &ParentRef) -> Value {
    let mut fields = Map::new();
    let texts = [
        ("group", &parent.group),
        ("kind", &parent.kind),
        ("namespace", &parent.namespace),
        ("sectionName", &parent.section_name),
    ];
    for (name, text) in texts {
        fields.extend(text.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    fields.insert("name".into(), json!(parent.name));
    fields.extend(parent.port.map(|port| ("port".to_owned(), json!(port))));
    fields.into()
}

fn parent_of(
    old: &Value,
    field: &str,
    controller: &str,
    parent: &ParentStatus,
    at: At<'_>,
) -> Value {
    let name = parent_ref(&parent.parent);
    let old = old.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_it = |old: &&Value| old[field] == name && old["controllerName"] == controller;
    let conditions = old.iter().find(is_it).map(|old| old["conditions"].clone());
    json!({
        field: name,
        "controllerName": controller,
        "conditions": conditions_of(&conditions.unwrap_or_default(), &parent.conditions, at),
    })
}

/// Puts what we say in a list behind what other controllers do.
fn put_ours(status: &mut Map<String, Value>, list: &str, controller: &str, ours: Vec<Value>) {
    let old = status.remove(list).unwrap_or_default();
    let old = old.as_array().cloned().unwrap_or_default();
    let others = old.into_iter().filter(|parent| parent["controllerName"] != controller);
    status.insert(list.into(), others.chain(ours).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(holds: bool, reason: &'static str) -> Wanted {
        let conditions = vec![Condition { holds, ..Condition::yes("Accepted", reason) }];
        let parent = ParentRef { name: "web".into(), port: Some(80), ..ParentRef::default() };
        let parents = vec![ParentStatus { parent, conditions }];
        Wanted { generation: 7, content: Content::Route { controller: "us".into(), parents } }
    }

    #[test]
    fn what_others_have_written_stays_and_a_time_changes_with_its_status_alone() {
        let others =
            json!({"parentRef": {"name": "x"}, "controllerName": "they", "conditions": []});
        let foreign = json!({"type": "Theirs", "status": "True"});
        let seen = json!({"parents": [
            {"parentRef": {"name": "web", "port": 80}, "controllerName": "us", "conditions": [
                {"type": "Accepted", "status": "True", "lastTransitionTime": "then"},
                {"type": "PartiallyInvalid", "status": "True"}, foreign]},
            {"parentRef": {"name": "gone"}, "controllerName": "us", "conditions": []},
            others], "more": 1});
        let merged = merge(Kind::HTTPRoute, &seen, Some(&route(true, "Accepted")), &[], "us");
        assert_eq!(merged["parents"][0], others);
        assert_eq!(merged["parents"].as_array().unwrap().len(), 2);
        assert_eq!(merged["more"], 1);
        let conditions = &merged["parents"][1]["conditions"];
        assert_eq!(conditions[0]["lastTransitionTime"], "then");
        assert_eq!(conditions[0]["observedGeneration"], 7);
        assert_eq!((&conditions[1], conditions.as_array().unwrap().len()), (&foreign, 2));
        let again = merge(Kind::HTTPRoute, &merged, Some(&route(true, "Accepted")), &[], "us");
        assert_eq!(again, merged);
        let turned =
            merge(Kind::HTTPRoute, &merged, Some(&route(false, "NoMatchingParent")), &[], "us");
        assert_ne!(turned["parents"][1]["conditions"][0]["lastTransitionTime"], "then");
        let none = merge(Kind::HTTPRoute, &merged, None, &[], "us");
        assert_eq!(none["parents"], json!([others]));
    }

    #[test]
    fn a_gateway_has_the_addresses_and_its_listeners() {
        let listener = ListenerStatus {
            name: "http".into(),
            kinds: vec![Kind::HTTPRoute],
            attached: 2,
            conditions: vec![Condition::yes("Accepted", "Accepted")],
        };
        let (conditions, listeners) = (Vec::new(), vec![listener]);
        let addresses = Addresses::Shared;
        let content = Content::Gateway { conditions, listeners, addresses, sets: 1 };
        let address = Address { ip: "192.0.2.1".into(), ..Address::default() };
        let wanted = Wanted { generation: 1, content };
        let status = merge(Kind::Gateway, &Value::Null, Some(&wanted), &[address], "us");
        assert_eq!(status["addresses"], json!([{"type": "IPAddress", "value": "192.0.2.1"}]));
        assert_eq!(status["attachedListenerSets"], 1);
        assert_eq!(status["listeners"][0]["attachedRoutes"], 2);
        assert_eq!(
            status["listeners"][0]["supportedKinds"],
            json!([{"group": GROUP, "kind": "HTTPRoute"}])
        );
    }
}
