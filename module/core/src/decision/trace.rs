//! The steps of a decision, for those who want to know why.

use crate::balancer::split::By;
use crate::model::policy::{ClientCertificates, Policies};
use crate::patterns::Patterns;
use crate::record::{MatchedRule, ServerView};
use crate::router::ServerMatch;

/// Hears the steps of a decision, in their order. A step that a request does not come to is not reported.
pub trait Trace {
    /// How the server of the host was found; `None`: no server names the host, and there is no default one.
    #[inline]
    fn server(&mut self, _found: Option<ServerMatch>) {}

    /// A script has sent the request to another path: what was told of the server's rules is about one before.
    #[inline]
    fn moved(&mut self) {}

    /// The server's rules were searched for a path; `winner` takes it.
    #[inline]
    fn rules(
        &mut self,
        _server: &ServerView<'_>,
        _path: &[u8],
        _patterns: &Patterns,
        _winner: Option<&MatchedRule<'_>>,
    ) {
    }

    /// The host asks its clients for a certificate.
    #[inline]
    fn client_certificate(&mut self, _asked: &ClientCertificates) {}

    /// The rule has policies, and they decide about the request.
    #[inline]
    fn policies(&mut self, _policies: &Policies) {}

    /// This backend serves. Reported again when another one takes its place.
    #[inline]
    fn backend(&mut self, _reason: BackendReason) {}

    /// Is called last, with the reason for the answer.
    #[inline]
    fn answer(&mut self, _reason: Reason) {}
}

/// Hears nothing, and compiles to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Trace for Silent {}

/// The reason for which a backend serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendReason {
    /// The rule names the backend, and nothing takes its place.
    Own,
    /// The rule names none, and this is the default one.
    Default,
    /// Alternatives share the requests of the backend; `is_alternative`: one of them takes this one.
    Split {
        /// What of the request, or which weight, decided.
        by: By,
        /// Whether an alternative was chosen, and not the backend that it stands in for.
        is_alternative: bool,
    },
    /// The one before has no endpoint.
    Fallback,
}

impl BackendReason {
    /// The reason as a sentence for `oxigress explain`.
    pub fn text(self) -> &'static str {
        match self {
            BackendReason::Own => "the rule's own",
            BackendReason::Default => "the default backend",
            BackendReason::Split { by: By::Affinity | By::Cookie, .. } => {
                "by a cookie of the request"
            }
            BackendReason::Split { by: By::Header, .. } => "by a header of the request",
            BackendReason::Split { by: By::Weight, .. } => "by weight",
            BackendReason::Split { by: By::Chance, is_alternative: false } => {
                "the rule's own, by weight: alternatives take their share"
            }
            BackendReason::Split { by: By::Chance, is_alternative: true } => {
                "by weight: alternatives share all requests"
            }
            BackendReason::Fallback => "the rule's backend has no endpoint: its fallback",
        }
    }
}

/// Why a request gets its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts below say it")]
pub enum Reason {
    NothingPublished,
    HostPolicyUnusable,
    HostDenied,
    Misdirected,
    OtherListener,
    CertificateMissing,
    CertificateRefused,
    SubjectRefused,
    Blocked,
    NoAnswer,
    PoliciesMissing,
    LacksSlash,
    Denied,
    DotSegments,
    Preflight,
    RuleRedirects,
    RedirectLeadsNowhere,
    RewriteRefused,
    RewriteToUrl,
    ScriptAnswers,
    MovesInACircle,
    MovedToAnother,
    ToHttps,
    NoRule,
    NoBackend,
    NoEndpoint,
    Busy,
    Served,
}

impl Reason {
    /// The reason as a sentence for `oxigress explain`.
    pub fn text(self) -> &'static str {
        match self {
            Reason::NothingPublished => "nothing was ever published",
            Reason::HostPolicyUnusable => "the host's TLS policy cannot be read",
            Reason::HostDenied => "the host's client certificates cannot be checked",
            Reason::Misdirected => {
                "the TLS handshake did not request the client certificate that this host requires"
            }
            Reason::OtherListener => "the TLS connection is for another listener than the host",
            Reason::CertificateMissing => {
                "the host requires a client certificate, and the client sent none"
            }
            Reason::CertificateRefused => "the client's certificate is not valid for the host",
            Reason::SubjectRefused => "the subject of the client's certificate does not match",
            Reason::Blocked => "User-Agent or Referer is blocked for all hosts",
            Reason::NoAnswer => "a rule's pattern exceeds the matching limit on this path",
            Reason::PoliciesMissing => {
                "the rule's policies, or a bundle that they name, are not there"
            }
            Reason::LacksSlash => {
                "no rule matches, but an exact rule matches with a trailing slash: redirected"
            }
            Reason::Denied => {
                "denied: a setting that restricts access cannot be applied, or a route has no backend that may serve it"
            }
            Reason::DotSegments => {
                "the path has a segment `.` or `..`, and the rule asks an auth server about the path"
            }
            Reason::Preflight => "CORS preflight",
            Reason::RuleRedirects => "the rule is a redirect",
            Reason::RedirectLeadsNowhere => "the redirect has no valid target",
            Reason::RewriteRefused => "the rewritten path is not a valid request path",
            Reason::RewriteToUrl => "the rewrite's target is a URL",
            Reason::ScriptAnswers => "a step of a snippet answers",
            Reason::MovesInACircle => "rewrites of snippets lead in a circle",
            Reason::MovedToAnother => {
                "a rewrite of a snippet, or an endpoint's X-Accel-Redirect, leads to a rule of another namespace than its own"
            }
            Reason::ToHttps => "plain HTTP is redirected to HTTPS",
            Reason::NoRule => "no rule takes the path, and there is no default backend",
            Reason::NoBackend => "the rule names no backend, and there is no default one",
            Reason::NoEndpoint => "the backend has no endpoint",
            Reason::Busy => "every endpoint is busy",
            Reason::Served => "an endpoint of the backend answers",
        }
    }
}
