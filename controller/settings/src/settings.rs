//! The settings: what the ConfigMap says, with ingress-nginx's defaults.

use crate::StaticConfig;
use crate::defaults::Defaults;
use crate::keys::tls;
use crate::tracing::TracingSettings;
use oxigress_core::model::policy::{HeaderPattern, HeaderValue};
use oxigress_core::model::{Algorithm, RedirectCode};
use oxigress_objects::{ConfigMap, Key as ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the ConfigMap says, with the reference's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The key ssl-redirect.
    pub ssl_redirect: bool,
    /// The key force-ssl-redirect.
    pub force_ssl_redirect: bool,
    /// The key http-redirect-code.
    pub http_redirect_code: RedirectCode,
    /// no-tls-redirect-locations: beginnings of paths as configured.
    pub no_tls_redirect_locations: Vec<String>,
    /// proxy-ssl-location-only: TLS toward endpoints is the Ingress's own, and not its hosts'.
    pub proxy_ssl_location_only: bool,
    /// load-balance: where no Ingress says otherwise.
    pub load_balance: Algorithm,
    /// service-upstream: where no Ingress says otherwise.
    pub service_upstream: bool,
    /// use-port-in-redirects: where no Ingress says otherwise.
    pub use_port_in_redirects: bool,
    /// What holds for every location whose Ingress says nothing else.
    pub defaults: Defaults,
    /// global-auth-*, as annotations of these names, until all of them were read.
    pub(crate) global_auth: BTreeMap<&'static str, String>,
    /// The snippets as they are written, until they are translated.
    pub snippets: Snippets,
    /// The keys enable-opentelemetry, opentelemetry-*, otlp-* and otel-*.
    pub tracing: TracingSettings,
    /// The keys hsts*.
    pub hsts: tls::Hsts,
    /// The key ssl-reject-handshake.
    pub rejects_unknown_names: bool,
    /// The key block-user-agents.
    pub blocked_user_agents: Vec<HeaderPattern>,
    /// The key block-referers.
    pub blocked_referers: Vec<HeaderPattern>,
    /// The values that stand in nginx.conf.
    pub static_config: StaticConfig,
    /// What the admission webhook refuses.
    pub admission: Admission,
    /// A key that protects every location and cannot be honoured: all of them are closed.
    pub closing_key: Option<String>,
    pub(crate) request_headers_from: Option<ObjectKey>,
    pub(crate) response_headers_from: Option<ObjectKey>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            ssl_redirect: true,
            force_ssl_redirect: false,
            http_redirect_code: RedirectCode::PermanentRedirect,
            no_tls_redirect_locations: vec!["/.well-known/acme-challenge".into()],
            proxy_ssl_location_only: false,
            load_balance: Algorithm::RoundRobin,
            service_upstream: false,
            use_port_in_redirects: false,
            defaults: Defaults::default(),
            global_auth: BTreeMap::new(),
            snippets: Snippets::default(),
            tracing: TracingSettings::default(),
            hsts: tls::Hsts::default(),
            rejects_unknown_names: false,
            blocked_user_agents: Vec::new(),
            blocked_referers: Vec::new(),
            static_config: StaticConfig::default(),
            admission: Admission::default(),
            closing_key: None,
            request_headers_from: None,
            response_headers_from: None,
        }
    }
}

/// Texts in the syntax of nginx.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snippets {
    /// The key global-auth-snippet.
    pub auth: String,
    /// The key http-snippet.
    pub http: String,
    /// The key location-snippet.
    pub location: String,
    /// The key main-snippet.
    pub main: String,
    /// The key server-snippet.
    pub server: String,
    /// The key stream-snippet.
    pub stream: String,
}

/// What the admission webhook refuses beside what translate rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The key strict-validate-path-type: an Ingress whose Exact or Prefix path is no plain path is refused.
    pub strict_path_type: bool,
    /// The key annotation-value-word-blocklist: an annotation whose value has one of these words is refused.
    pub blocked_words: Vec<String>,
    /// The key allow-snippet-annotations: an Ingress is not refused for having a snippet.
    pub allows_snippets: bool,
}

impl Default for Admission {
    fn default() -> Self {
        Admission { strict_path_type: true, blocked_words: Vec::new(), allows_snippets: false }
    }
}

pub(crate) type Maps = BTreeMap<ObjectKey, Arc<ConfigMap>>;

impl Settings {
    /// Closes every location for a key that protects and cannot be honoured.
    pub fn close(&mut self, key: &str) {
        self.closing_key.get_or_insert_with(|| key.to_owned());
        // Whatever is made of these policies is closed, whichever API it comes from.
        self.defaults.policies.denied = Some(503);
    }

    /// The settings of the wire, but for the default backend.
    pub fn published(&self) -> oxigress_core::model::Settings {
        let hsts = self.hsts.header();
        oxigress_core::model::Settings {
            http_redirect_code: self.http_redirect_code,
            hsts: hsts.and_then(|value| HeaderValue::parse(value).ok()),
            blocked_user_agents: self.blocked_user_agents.clone(),
            blocked_referers: self.blocked_referers.clone(),
            rejects_unknown_names: self.rejects_unknown_names,
            ..oxigress_core::model::Settings::default()
        }
    }

    /// Whether it says something that one of these maps holds.
    pub fn is_from(&self, maps: &BTreeSet<ObjectKey>) -> bool {
        self.sources().any(|key| maps.contains(key))
    }

    /// The other maps that hold a part of it.
    pub fn sources(&self) -> impl Iterator<Item = &ObjectKey> {
        [&self.request_headers_from, &self.response_headers_from].into_iter().flatten()
    }
}
