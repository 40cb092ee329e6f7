//! TLS toward endpoints that one Ingress says for all HTTPS paths of its hosts: proxy-ssl-* without
//! proxy-ssl-location-only.
//!
//! Shape:   [`HostUpstreamTls::of`] looks at the Ingresses of a host, [`HostUpstreamTls::for_path`] says what holds for a path
//!          that is spoken to over TLS and names no Secret itself.
//! Errors:  while a word with proxy-ssl-verify cannot be honoured, the paths it holds for are closed: they would go on
//!          unverified.
//! Source:  ingress-nginx, where the oldest Ingress with `ca.crt` counts for everybody. Here it counts for its own
//!          namespace (docs/differences/tls.md): another one's endpoints could use its client certificate.

use crate::ingress::Claims;
use oxigress_core::model::policy::{Policies, Protocol};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the Ingresses of a host say, by namespace.
#[derive(Debug, Default)]
pub struct HostUpstreamTls<'a> {
    /// The oldest of each namespace.
    by_namespace: BTreeMap<&'a str, &'a Claims>,
    /// The oldest of all, whose word ingress-nginx takes.
    first: Option<&'a Claims>,
    /// Policies that got the word of another Ingress, by the address of those that they were before, which are kept so
    /// that no others get it.
    made: BTreeMap<*const Policies, (Arc<Policies>, Arc<Policies>)>,
}

/// What holds for a path.
#[derive(Debug)]
pub enum PathUpstreamTls<'a> {
    Override,
    /// These policies, with the word of another Ingress.
    Shared(Arc<Policies>),
    /// The word of this Ingress, which cannot be honoured.
    Lost(&'a Claims),
    /// Nothing; in ingress-nginx the word of this one of another namespace.
    Foreign(&'a Claims),
}

impl<'a> HostUpstreamTls<'a> {
    /// `all` are the Ingresses of the host, oldest first.
    pub fn of(all: &[&'a Claims]) -> Self {
        let mut found = HostUpstreamTls::default();
        let says = |by: &Claims| {
            let tls = by.annotated().proxy.as_ref().and_then(|proxy| proxy.tls.as_ref());
            by.has_lost_upstream_tls() || tls.is_some_and(|tls| tls.authorities.is_some())
        };
        for by in all.iter().copied().filter(|by| says(by)) {
            found.by_namespace.entry(&by.key.namespace).or_insert(by);
            found.first.get_or_insert(by);
        }
        found
    }

    /// Whether no Ingress of the host has proxy-ssl-* annotations.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// What holds for a path of `by` with these policies.
    pub fn for_path(&mut self, by: &Claims, policies: &Arc<Policies>) -> PathUpstreamTls<'a> {
        let lacks_word = policies.proxy.as_ref().is_some_and(|proxy| {
            let is_tls = matches!(
                proxy.protocol,
                Some(Protocol::AutoHttp | Protocol::Https | Protocol::Grpcs)
            );
            is_tls && proxy.tls.is_none()
        });
        if !lacks_word || by.is_closed() {
            return PathUpstreamTls::Override;
        }
        match (self.by_namespace.get(by.key.namespace.as_str()).copied(), self.first) {
            (Some(other), _) if other.has_lost_upstream_tls() => PathUpstreamTls::Lost(other),
            (Some(other), _) => PathUpstreamTls::Shared(self.share(other, policies)),
            (None, Some(other)) => PathUpstreamTls::Foreign(other),
            (None, None) => PathUpstreamTls::Override,
        }
    }

    fn share(&mut self, of: &Claims, policies: &Arc<Policies>) -> Arc<Policies> {
        let make = || {
            let mut shared = Policies::clone(policies);
            let tls = of.annotated().proxy.as_ref().and_then(|proxy| proxy.tls.clone());
            shared.proxy.get_or_insert_default().tls = tls;
            (policies.clone(), Arc::new(shared))
        };
        self.made.entry(Arc::as_ptr(policies)).or_insert_with(make).1.clone()
    }
}
