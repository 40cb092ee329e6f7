//! What holds where an Ingress says nothing: the ConfigMap's part of policies.

use oxigress_core::model::policy::{Access, Policies, Tracing};
use std::collections::BTreeSet;

/// What the ConfigMap says; its own defaults are the reference's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Of every location, before its Ingress's annotations.
    pub policies: Policies,
    /// How requests are traced where an Ingress alone asks for it.
    pub tracing: Tracing,
    /// The key allow-cross-namespace-resources: annotations may name Secrets and ConfigMaps of other namespaces.
    pub cross_namespace: bool,
    /// `allow-snippet-annotations`: what snippets say is carried out.
    pub allows_snippets: bool,
    /// Variables that the key http-snippet defines, in lower case.
    pub variables: BTreeSet<String>,
    /// `retry-non-idempotent`: holds beside whatever `proxy-next-upstream` says.
    pub retry_non_idempotent: bool,
    /// `no-auth-locations`: beginnings of paths that ask nobody for a password.
    pub no_auth_locations: Vec<String>,
    /// `global-allowed-response-headers`: names that `custom-headers` may set, in lower case.
    pub allowed_response_headers: Vec<String>,
    /// The key limit-req-status-code: the answer to a request over a rate limit.
    pub limit_request_status: u16,
    /// The key limit-conn-status-code: the answer to a request over a limit of connections.
    pub limit_connection_status: u16,
}

impl Defaults {
    /// Asks nobody for a password where `no-auth-locations` says so.
    pub fn open(&self, path: &str, policies: &mut Policies) {
        if let Some(access) = &mut policies.access
            && self.is_open(path)
        {
            access.basic = None;
            access.external = None;
        }
        policies.access.take_if(|access| *access == Access::default());
    }

    /// Whether nobody is asked for a password at a path.
    pub fn is_open(&self, path: &str) -> bool {
        self.no_auth_locations.iter().any(|beginning| path.starts_with(beginning.as_str()))
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            policies: Policies::default(),
            tracing: Tracing::default(),
            cross_namespace: false,
            allows_snippets: false,
            variables: BTreeSet::new(),
            retry_non_idempotent: false,
            no_auth_locations: vec!["/.well-known/acme-challenge".into()],
            allowed_response_headers: Vec::new(),
            limit_request_status: 503,
            limit_connection_status: 503,
        }
    }
}
