//! The objects that objects of the Gateway API name.

use super::{
    BackendRef, GROUP, HttpBackendRef, HttpRouteRule, HttpRouteSpec, ListenerSetSpec, ObjectName,
    ParentRef, TRUST_GROUP,
};
use crate::{Key, Kind, ObjectRef};

impl ObjectName {
    /// The object, where the namespace is this one unless another is written.
    pub fn key(&self, namespace: &str) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or(namespace), &self.name)
    }

    /// Whether it names a Secret, which is what is meant without a kind.
    pub fn is_secret(&self) -> bool {
        self.is_core() && self.kind.as_deref().is_none_or(|kind| kind == "Secret")
    }

    /// The ConfigMap or ClusterTrustBundle that it names for authorities; `None`: an object of another kind. A ConfigMap is of
    /// this namespace unless another is written.
    pub fn authorities(&self, namespace: &str) -> Option<ObjectRef> {
        match (self.group.as_deref().unwrap_or_default(), self.kind.as_deref()?) {
            ("", "ConfigMap") => Some(ObjectRef::new(Kind::ConfigMap, self.key(namespace))),
            (TRUST_GROUP, "ClusterTrustBundle") => {
                Some(ObjectRef::new(Kind::ClusterTrustBundle, Key::new("", &self.name)))
            }
            _ => None,
        }
    }

    fn is_core(&self) -> bool {
        self.group.as_deref().unwrap_or_default().is_empty()
    }
}

impl<F> BackendRef<F> {
    /// Whether it names a Service, which is what is meant without a kind.
    pub fn is_service(&self) -> bool {
        self.group.as_deref().unwrap_or_default().is_empty()
            && self.kind.as_deref().is_none_or(|kind| kind == "Service")
    }
}

impl ParentRef {
    /// The object that it names, for a route of this namespace; `None`: one of a kind that has no listeners.
    pub fn object(&self, namespace: &str) -> Option<ObjectRef> {
        let is_of_api = self.group.as_deref().is_none_or(|group| group == GROUP);
        let kind = match self.kind.as_deref() {
            None | Some("Gateway") => Kind::Gateway,
            Some("ListenerSet") => Kind::ListenerSet,
            Some(_) => return None,
        };
        let key = Key::new(self.namespace.as_deref().unwrap_or(namespace), &self.name);
        is_of_api.then(|| ObjectRef::new(kind, key))
    }
}

impl ListenerSetSpec {
    /// The Gateway that it names, for a set of this namespace; `None`: its parent is something else.
    pub fn gateway(&self, namespace: &str) -> Option<Key> {
        let ObjectName { group, kind, namespace: own, name } = &self.parent_ref;
        let is_gateway = group.as_deref().is_none_or(|group| group == GROUP)
            && kind.as_deref().is_none_or(|kind| kind == "Gateway");
        is_gateway.then(|| Key::new(own.as_deref().unwrap_or(namespace), name))
    }
}

impl HttpRouteRule {
    /// The Services that it names, for its requests and for copies of them.
    pub fn references(&self) -> impl Iterator<Item = &HttpBackendRef> {
        let backends = self.backend_refs.iter();
        let filters = backends.clone().flat_map(|backend| &backend.filters).chain(&self.filters);
        let mirrors =
            filters.filter_map(|filter| Some(&filter.request_mirror.as_ref()?.backend_ref));
        backends.chain(mirrors)
    }
}

impl HttpRouteSpec {
    /// The regular expressions of its matches, as written.
    pub fn expressions(&self) -> impl Iterator<Item = &str> {
        let is_regex = |kind: &Option<String>| kind.as_deref() == Some("RegularExpression");
        let matches = self.rules.iter().flat_map(|rule| &rule.matches);
        matches.flat_map(move |one| {
            let values = one.headers.iter().chain(&one.query_params);
            let values = values.filter(move |value| is_regex(&value.r#type));
            let path = one.path.iter().filter(move |path| is_regex(&path.r#type));
            values.map(|value| &*value.value).chain(path.filter_map(|path| path.value.as_deref()))
        })
    }
}
