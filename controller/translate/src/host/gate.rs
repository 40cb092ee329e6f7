//! The last look at what a host publishes: the validator that the module uses too. What does not pass is closed here, with
//! a note at its Ingresses, so that nginx has nothing to refuse.

use crate::host::merge::MergedHost;
use oxigress_core::model::policy::{Policies, TlsPolicy};
use oxigress_core::model::{HostPattern, Rule, Snapshot};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use oxigress_validate::{Fault, record};
use std::sync::Arc;

/// Closes what the validator refuses. What `live` has already was looked at when it came.
pub fn close_invalid(host: &HostPattern, merged: &mut MergedHost, live: &Snapshot) {
    let rules: Vec<_> = merged.server.iter().flat_map(|server| &server.rules).collect();
    let mut notes = Vec::new();
    let mut say = |fault: &Fault, concerns: &dyn Fn(&Rule) -> bool| {
        for rule in rules.iter().filter(|rule| concerns(rule)) {
            let key = Key::new(&rule.origin.namespace, &rule.origin.ingress);
            let path = &rule.origin.path;
            let field = fault.field.trim_start_matches('/').replace('/', ".");
            let what = if field.is_empty() { "its settings" } else { &*field };
            let message = format!(
                "host {host}, path {path} is closed: {what} cannot be used: {}",
                fault.error
            );
            notes.push((ObjectRef::new(Kind::Ingress, key), Note::rejected(message)));
        }
    };
    if let Some(policy) = &mut merged.tls
        && live.tls.get(host) != Some(&*policy)
        && let Err(fault) = record::tls_policy(policy)
    {
        *policy = TlsPolicy { denied: true, ..TlsPolicy::default() };
        say(&fault, &|_| true);
    }
    for (id, policies) in &mut merged.policies {
        if !live.policies.contains_key(id)
            && let Err(fault) = record::policies(policies)
        {
            *policies = Arc::new(Policies { denied: Some(503), ..Policies::default() });
            say(&fault, &|rule| rule.policies.as_ref() == Some(id));
        }
    }
    merged.notes.extend(notes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::model::policy::PolicyId;

    #[test]
    fn what_the_validator_refuses_is_closed_and_named() {
        let host = HostPattern::parse("a.test").unwrap();
        let id = PolicyId::parse("p").unwrap();
        let policies: Policies =
            serde_json::from_str(r#"{"proxy": {"tls": {"ciphers": "foo"}}}"#).unwrap();
        let server = r#"{"rules": [{"path": {"prefix": "/"}, "policies": "p",
            "origin": {"namespace": "n", "ingress": "i", "path": "/"}}]}"#;
        let mut merged = MergedHost {
            server: Some(serde_json::from_str(server).unwrap()),
            tls: Some(serde_json::from_str(r#"{"ciphers": "foo"}"#).unwrap()),
            policies: [(id.clone(), Arc::new(policies))].into(),
            ..MergedHost::default()
        };
        close_invalid(&host, &mut merged, &Snapshot::default());
        assert!(merged.tls.is_some_and(|policy| policy.denied));
        assert_eq!(merged.policies[&id].denied, Some(503));
        let said: Vec<_> = merged.notes.iter().map(|(_, note)| note.message.as_str()).collect();
        assert_eq!(said.len(), 2);
        assert!(said.iter().all(|text| text.contains("OpenSSL knows no cipher")), "{said:?}");
    }
}
