//! Which objects are behind the records that nginx does not get.

use crate::Translator;
use crate::pace::WaitingNews;
use crate::patterns::budget;
use crate::translator::notes::Part;
use oxigress_core::model::{BackendId, HostPattern, ListenerHost, Rule, SessionPlace, StreamPort};
use oxigress_core::record;
use oxigress_core::record::table::RecordRef;
use oxigress_core::text::count;
use oxigress_objects::verdict::{Note, VerdictChanges};
use oxigress_objects::{Key, Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A record that nginx does not get, or the rules in it that are another namespace's than the host's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldItem {
    /// The record that is withheld.
    pub record: RecordRef,
    /// The namespace whose rules are meant; `None`: the record itself.
    pub guest: Option<String>,
    /// The words that name it.
    pub name: String,
    /// The reason, in words for the objects' authors.
    pub reason: String,
}

type Identity = (RecordRef, Option<String>);

impl Translator {
    /// The oldest object that names a host, by which it has an owner, and its time of creation in seconds since 1970.
    pub fn owner_of(&self, host: &HostPattern) -> Option<(&Key, i64)> {
        let by_gateway = self.gateway_claims.get(host);
        let oldest = self.oldest(host, by_gateway);
        // Where hosts are shared no route takes one from an Ingress, but of its own hosts it is the owner.
        let (created, key) = oldest.or_else(|| Some(by_gateway?.age.borrowed()))?;
        Some((key, created))
    }

    /// The object by which a host of a listener has an owner, and its time of creation in seconds since 1970.
    pub fn owner_at(&self, at: &ListenerHost) -> Option<(&Key, i64)> {
        let owner = self.places.owner(at)?;
        Some((&owner.age.key, owner.age.created))
    }

    /// Says of each object behind a withheld record that it is not served, and why.
    pub fn set_withheld(&mut self, withheld: Vec<WithheldItem>) -> VerdictChanges {
        let mut notes = Vec::new();
        if !withheld.is_empty() {
            let objects = self.objects_of_records(&withheld);
            for WithheldItem { record, guest, name, reason } in withheld {
                let message = match &guest {
                    None => format!("{name} is not served and its requests are refused: {reason}"),
                    Some(_) => format!("{name} are not served: {reason}"),
                };
                let of = objects.get(&(record, guest)).cloned().unwrap_or_default();
                notes.extend(of.into_iter().map(|o| (o, Note::rejected(message.clone()))));
            }
        }
        self.notes.set(Part::Withheld, notes);
        self.notes.take_changes()
    }

    /// Says of each object whether its change waits.
    pub fn set_waiting(&mut self, news: WaitingNews) -> VerdictChanges {
        for (object, wait) in news {
            let note = wait.map(|wait| (object.clone(), Note::warning(waiting_message(wait))));
            self.notes.set(Part::Waiting(object), note);
        }
        self.notes.take_changes()
    }

    fn objects_of_records(
        &self,
        withheld: &[WithheldItem],
    ) -> BTreeMap<Identity, BTreeSet<ObjectRef>> {
        let all: BTreeSet<Identity> =
            withheld.iter().map(|item| (item.record.clone(), item.guest.clone())).collect();
        let mut objects: BTreeMap<Identity, BTreeSet<ObjectRef>> = BTreeMap::new();
        let mut add = |kind, key: &str, rule: &Rule| {
            let record = RecordRef { kind, key: key.to_owned() };
            // The rules of a guest are withheld by themselves.
            let by_guest = matches!(kind, record::Kind::Server | record::Kind::Listener)
                .then(|| (record.clone(), Some(rule.origin.namespace.clone())));
            for item in by_guest.into_iter().chain([(record, None)]) {
                if all.contains(&item) {
                    objects.entry(item).or_default().extend(self.objects_of_rule(rule));
                }
            }
        };
        for (host, server) in &self.snapshot.servers {
            for rule in &server.rules {
                for (kind, key) in self.records_of_host(host).chain(self.records_of(rule)) {
                    add(kind, key, rule);
                }
            }
        }
        for (listener, server) in &self.snapshot.listener_servers {
            let listener = listener.to_string();
            for rule in &server.rules {
                add(record::Kind::Listener, &listener, rule);
                for (kind, key) in self.records_of(rule) {
                    add(kind, key, rule);
                }
            }
        }
        for item in &all {
            let (record, _) = item;
            let object = match record.kind {
                record::Kind::Certificate => {
                    Key::parse(&record.key).map(|key| ObjectRef::new(Kind::Secret, key))
                }
                record::Kind::Session => SessionPlace::parse(&record.key)
                    .ok()
                    .and_then(|place| self.route_of_session(&place)),
                record::Kind::Backend | record::Kind::Endpoints if !objects.contains_key(item) => {
                    service_of(&record.key).map(|key| ObjectRef::new(Kind::Service, key))
                }
                _ => None,
            };
            objects.entry(item.clone()).or_default().extend(object);
        }
        objects
    }
}

impl Translator {
    /// The Ingress or the route that has a rule; of a rule of a listener that may be several, all.
    fn objects_of_rule(&self, rule: &Rule) -> impl Iterator<Item = ObjectRef> {
        let key = Key::new(&rule.origin.namespace, &rule.origin.ingress);
        let routes = Kind::ROUTES.map(|kind| ObjectRef::new(kind, key.clone()));
        let is_known = |route: &ObjectRef| self.gateways.statuses.contains_key(route);
        let is_ingress = !routes.iter().any(is_known) || self.claims.contains_key(&key);
        let ingress = is_ingress.then(|| ObjectRef::new(Kind::Ingress, key));
        routes.into_iter().filter(is_known).chain(ingress)
    }

    /// The route that has the sessions of a place.
    pub(crate) fn route_of_session(&self, place: &SessionPlace) -> Option<ObjectRef> {
        let route = self.snapshot.sessions.get(place)?;
        let kind = match (place.port, &place.host) {
            (StreamPort::Udp(_), _) => Kind::UDPRoute,
            (StreamPort::Tcp(_), Some(_)) => Kind::TLSRoute,
            (StreamPort::Tcp(_), None) => Kind::TCPRoute,
        };
        let is_routes = !route.route.is_empty();
        is_routes.then(|| ObjectRef::new(kind, Key::new(&route.namespace, &route.route)))
    }

    /// Kinds and keys of the records that stand under a host.
    fn records_of_host<'a>(
        &'a self,
        host: &'a HostPattern,
    ) -> impl Iterator<Item = (record::Kind, &'a str)> {
        use record::Kind::{Bundle, Name, Passthrough, Server, Tls};
        let bundles = self.snapshot.tls.get(host).into_iter().flat_map(|tls| tls.bundles());
        let of_host = [Server, Tls, Name, Passthrough].map(|kind| (kind, host.as_str()));
        of_host.into_iter().chain(bundles.map(|id| (Bundle, id.as_str())))
    }

    /// Kinds and keys of the other records that a rule needs.
    fn records_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = (record::Kind, &'a str)> {
        use record::Kind::{Backend, Bundle, Endpoints, Policies};
        let policies = rule.policies.iter();
        let said = policies.clone().filter_map(|id| self.snapshot.policies.get(id));
        let bundles = said.flat_map(|policies| policies.bundles());
        let backend = rule.backend.iter();
        bundles
            .map(|id| (Bundle, id.as_str()))
            .chain(policies.map(|id| (Policies, id.as_str())))
            .chain(backend.flat_map(|id| [(Backend, id.as_str()), (Endpoints, id.as_str())]))
    }
}

fn service_of(id: &str) -> Option<Key> {
    let (namespace, name) = BackendId::service_of(id.as_bytes())?;
    Some(Key::new(str::from_utf8(namespace).ok()?, str::from_utf8(name).ok()?))
}

/// Says of an object that its change waits for its namespace's share of the controller's time ([`crate::pace`]).
fn waiting_message(wait: Duration) -> String {
    format!(
        "its last change is not served yet: changes of this namespace needed more than {} ms of the controller's time in a \
         minute, the limit per namespace; it is applied automatically, in {} at the earliest: change less often, or use \
         fewer regular expressions, certificates or Ingresses that name the same object",
        budget::OF_NAMESPACE / 1_000_000,
        count(usize::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(usize::MAX), "second")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::tests::world;
    use oxigress_objects::verdict::Severity;

    /// Of one host two Ingresses of two namespaces, and a host beside it.
    const MANIFESTS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: shop, namespace: a, creationTimestamp: '2024-01-01T00:00:00Z' }
spec: { tls: [{ hosts: [a.test], secretName: pair }], rules: [{ host: a.test, http: { paths: [{ path: /, pathType: Prefix,
  backend: { service: { name: s, port: { number: 80 } } } }] } }] }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: guest, namespace: b, creationTimestamp: '2025-01-01T00:00:00Z' }
spec: { rules: [{ host: a.test, http: { paths: [{ path: /b, pathType: Prefix,
  backend: { service: { name: s, port: { number: 80 } } } }] } }] }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: other, namespace: a, creationTimestamp: '2025-01-01T00:00:00Z' }
spec: { rules: [{ host: other.test, http: { paths: [{ path: /, pathType: Prefix,
  backend: { service: { name: s, port: { number: 80 } } } }] } }] }
";

    #[test]
    fn a_withheld_record_is_told_to_each_object_behind_it_and_to_no_other() {
        let world = world(MANIFESTS);
        let options = Options { watch_ingress_without_class: true, ..Options::default() };
        let mut translator = Translator::new(options);
        translator.update(&world, &world.all());
        let of = |kind, key: &str, guest: Option<&str>| WithheldItem {
            record: RecordRef { kind, key: key.into() },
            guest: guest.map(String::from),
            name: format!("record {key}"),
            reason: "nginx refused it".into(),
        };
        use record::Kind::{Certificate, Endpoints, Server, Tls};
        for (item, expected) in [
            (of(Server, "a.test", None), &["Ingress a/shop", "Ingress b/guest"][..]),
            (of(Server, "a.test", Some("b")), &["Ingress b/guest"]),
            (of(Tls, "a.test", None), &["Ingress a/shop", "Ingress b/guest"]),
            (of(Tls, "other.test", None), &["Ingress a/other"]),
            (of(Endpoints, "a/s/80", None), &["Ingress a/other", "Ingress a/shop"]),
            (of(Endpoints, "c/s/80", None), &["Service c/s"]),
            (of(Certificate, "a/pair", None), &["Secret a/pair"]),
        ] {
            let said = format!("{item:?}");
            let changes = translator.set_withheld(vec![item]);
            let told = changes.iter().filter(|(_, verdict)| {
                verdict.as_ref().is_some_and(|verdict| verdict.severity == Severity::Rejected)
            });
            let mut told: Vec<_> = told.map(|(object, _)| object.to_string()).collect();
            told.sort();
            assert_eq!(told, expected, "{said}");
            translator.set_withheld(Vec::new());
        }
    }
}
