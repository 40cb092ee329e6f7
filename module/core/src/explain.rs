//! Why a request goes where it goes: the rule that wins and those that lose, policies, backend and endpoints, from the
//! records of one generation.
//!
//! Shape:   [`Asked`] in, [`Explanation`] out, in the order in which the module decides (its `phase/rewrite.rs`). Who
//!          wins is asked of the router, the split and the redirects themselves: none of them is written a second time.
//! Errors:  none; what a real request would be refused for is the outcome. What only a connection knows (address,
//!          client certificate, password) is not decided but named, in [`Explanation::conditions`].
//! Secrets: keys, password hashes and values of headers that may be credentials are not in it.

mod asked;
mod shown;

pub use asked::{Asked, InvalidQuery};

use crate::balancer::split;
use crate::model::policy::{Policies, VerifyClient};
use crate::model::{Algorithm, HostPattern, PathPattern};
use crate::patterns::Patterns;
use crate::policy::cors::{Decision, Origins};
use crate::record::{
    self, BackendView, EndpointsView, Kind, MatchResult, Records, ServerView, SettingsView,
    SplitView, decode_tls,
};
use crate::redirect;
use crate::rewrite::{self, Rewritten};
use crate::router::{self, tls};
use asked::Routed;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// Most rules that are told of one server.
const MAX_RULES: usize = 100;
/// Most endpoints that are told of one backend.
const MAX_ENDPOINTS: usize = 1_000;

/// What becomes of a request, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// As nginx understands it.
    pub host: String,
    /// As nginx understands it: decoded, without dot segments.
    pub path: String,
    /// Whose rules are looked at; absent: nobody names the host, and there is no default server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// The rules that take the path, and those whose pattern was tried; the winner first.
    pub rules: Vec<Rule>,
    /// Rules of the server for other paths, which nobody looked at.
    pub other_rules: usize,
    /// What the policies of the winner say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<Value>,
    /// What else a real request has to fulfil.
    pub conditions: Vec<String>,
    /// What the client gets.
    pub outcome: Outcome,
    /// Who serves, where the request gets that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its host: a name, `*.` and a name, or `_`.
    pub host: String,
    /// `exact`, `wildcard` or `default`.
    pub found: String,
}

/// A rule of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its path.
    pub path: PathPattern,
    /// The Ingress it is from.
    pub namespace: String,
    /// 〃
    pub ingress: String,
    /// The Service and its port.
    pub service: String,
    /// 〃
    pub port: String,
    /// It takes the request.
    pub wins: bool,
    /// Why it does, or does not.
    pub why: String,
}

/// What the client gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// nginx answers by itself, with this status; absent: the backend answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Where a redirect leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Path and query as the endpoint sees them, where a rewrite changes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<String>,
    /// Why.
    pub why: String,
}

/// Who serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its id.
    pub id: String,
    /// Why this one.
    pub why: String,
    /// How one of its endpoints is chosen.
    pub algorithm: Algorithm,
    /// The name of the cookie that is looked at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_cookie: Option<String>,
    /// The key that is hashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_key: Option<String>,
    /// Others that take a part of the rule's requests.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub alternatives: Vec<Alternative>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Endpoints beyond those.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub more_endpoints: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Takes a part of a backend's requests: a canary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    /// Its id.
    pub id: String,
    /// Of `weight_total` requests.
    pub weight: u32,
    /// 〃
    pub weight_total: u32,
    /// The header that decides before the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The cookie that does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// Without endpoints it takes nothing.
    pub has_endpoints: bool,
}

/// One of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address and port.
    pub address: String,
    /// Its share.
    pub weight: u32,
    /// It may get the request.
    pub eligible: bool,
    /// Why not, or only just.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is counted of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests it has now.
    pub in_flight: u32,
    /// So long it is left out because it failed.
    pub ejected_ms: u64,
}

/// Explains a request. `counted` knows endpoints by backend and place; offline nobody does.
pub fn explain<'g>(
    records: &impl Records<'g>,
    asked: &Asked,
    patterns: &Patterns,
    counted: impl Fn(&[u8], usize) -> Option<Counted>,
) -> Explanation {
    let mut told = Explanation { host: asked.normal_host(), ..Explanation::default() };
    let Some(path) = asked.normal_path() else {
        told.outcome = status(400, "nginx takes no such path");
        return told;
    };
    told.path = text(&path);
    let settings = SettingsView::of(records);
    told.server = server(records, told.host.as_bytes());
    if let Some(denied) = client_certificate(records, &mut told) {
        told.outcome = denied;
        return told;
    }
    let header = |name: &[u8]| asked.header(name).unwrap_or_default().as_bytes();
    if settings.has_blocked()
        && settings.is_blocked(patterns, header(b"user-agent"), header(b"referer"))
    {
        told.outcome = status(403, "User-Agent or Referer is blocked for all hosts");
        return told;
    }
    let route = router::route(records, told.host.as_bytes(), &path, patterns);
    rules(records, &path, patterns, &mut told);
    let Ok(route) = route else {
        told.outcome = status(500, "a rule's pattern takes too much work on this path");
        return told;
    };
    let lacks_slash = route.as_ref().is_some_and(|route| route.lacks_slash);
    let (rule, captures) = route.map_or((None, None), |route| (Some(route.rule), route.captures));
    let routed = Routed { asked, path: &path, captures: captures.as_deref(), rule };
    let policies = match rule.map(|rule| rule.policies()).filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => match record::policies(records, id) {
            Some(policies) => Some(policies),
            None => {
                told.outcome =
                    status(503, "the rule's policies, or a bundle that they name, are not there");
                return told;
            }
        },
    };
    if lacks_slash {
        told.outcome = with_slash(policies.as_ref(), &routed);
        return told;
    }
    if let Some(policies) = &policies {
        told.policies = Some(shown::shown(policies));
        conditions(policies, &mut told.conditions);
        if let Some(outcome) = answer(policies, &routed, &mut told) {
            told.outcome = outcome;
            return told;
        }
    }
    if let Some(outcome) = to_https(records, settings, policies.as_ref(), &routed) {
        told.outcome = outcome;
        return told;
    }
    destination(records, settings, policies.as_ref(), &routed, patterns, &counted, &mut told);
    told
}

fn status(status: u16, why: &str) -> Outcome {
    Outcome { status: Some(status), why: why.into(), ..Outcome::default() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn server<'g>(records: &impl Records<'g>, host: &[u8]) -> Option<Server> {
    let of = |pattern: &[u8]| records.value(Kind::Server, pattern).map(|_| text(pattern));
    let (host, found) = match router::by_pattern(host, of) {
        Some(name) if name.starts_with('*') => (name, "wildcard"),
        Some(name) => (name, "exact"),
        None => (of(HostPattern::DEFAULT.as_bytes())?, "default"),
    };
    Some(Server { host, found: found.into() })
}

/// The rules that could take the path, each with what became of it.
fn rules<'g>(records: &impl Records<'g>, path: &[u8], patterns: &Patterns, told: &mut Explanation) {
    let Some(server) = &told.server else { return };
    let Some(value) = records.value(Kind::Server, server.host.as_bytes()) else { return };
    let view = ServerView::new(value);
    let considered = view.considered(path, patterns);
    told.other_rules = view.len().saturating_sub(considered.len());
    told.rules.extend(considered.into_iter().take(MAX_RULES).map(|considered| {
        let [_, namespace, ingress, service, port, _] = considered.rule.texts().map(text);
        let wins = matches!(considered.result, MatchResult::Wins | MatchResult::LacksSlash);
        let why = considered.result.why().into();
        Rule { path: considered.path, namespace, ingress, service, port, wins, why }
    }));
}

/// What a host asks of its clients before there is a request.
fn client_certificate<'g>(records: &impl Records<'g>, told: &mut Explanation) -> Option<Outcome> {
    let host = Some(told.host.as_bytes()).filter(|host| !host.is_empty());
    let Some(policy) = decode_tls(tls::policy(records, host)?) else {
        return Some(status(503, "the host's TLS policy cannot be read"));
    };
    if policy.denied {
        return Some(status(403, "the host's client certificates cannot be checked"));
    }
    let client = policy.client.filter(|client| client.verify != VerifyClient::Off)?;
    told.conditions.push(match client.subject {
        Some(subject) => format!("a client certificate whose subject matches {}", subject.as_str()),
        None => format!("a client certificate ({:?})", client.verify).to_lowercase(),
    });
    None
}

/// What policies ask for that only a real request can show.
fn conditions(policies: &Policies, told: &mut Vec<String>) {
    if let Some(access) = &policies.access {
        let before = told.len();
        if let Some(allow) = &access.allow {
            told.push(format!("a client address in one of {} networks", allow.len()));
        }
        if !access.deny.is_empty() {
            told.push(format!("a client address in none of {} networks", access.deny.len()));
        }
        if let Some(basic) = &access.basic {
            told.push(format!("a name and a password for {:?}", basic.realm));
        }
        if let Some(external) = &access.external {
            told.push(format!("the auth server {} lets it in", external.to.host.as_str()));
        }
        if access.any && told.len() > before + 1 {
            told.push("any one of these about access is enough".into());
        }
    }
    let Some(limits) = &policies.limits else { return };
    let rates = [(limits.per_second, "second"), (limits.per_minute, "minute")];
    for (limit, unit) in rates {
        let Some(limit) = limit else { continue };
        told.push(format!("at most {} requests a {unit} and client", limit.requests));
    }
    if let Some(limit) = limits.connections {
        told.push(format!("at most {} requests at once of a client", limit.requests));
    }
}

/// The answer to a path that lacks the slash of an exact one.
fn with_slash(policies: Option<&Policies>, routed: &Routed<'_, '_>) -> Outcome {
    let is_relative = policies.is_some_and(|policies| policies.relative_redirects);
    let origin = routed.asked.origin().filter(|_| !is_relative);
    let origin = origin.as_deref().map(str::as_bytes);
    let location = redirect::with_slash(origin, routed.path, routed.asked.args().as_bytes());
    let why = "no rule takes the path, and with a slash behind it an exact one does";
    Outcome { location: Some(text(&location)), ..status(301, why) }
}

/// What policies answer before the request is sent anywhere.
fn answer(policies: &Policies, routed: &Routed<'_, '_>, told: &mut Explanation) -> Option<Outcome> {
    if let Some(code) = policies.denied {
        return Some(status(code, "denied: a setting that protects cannot be honoured"));
    }
    if let Some(cors) = &policies.cors
        && routed.asked.method == "OPTIONS"
        && let Decision::Shared(_) =
            Origins::of(cors).decide(routed.asked.header(b"origin").map(str::as_bytes))
    {
        return Some(status(204, "a preflight of CORS"));
    }
    let to = |code, location: Option<Vec<u8>>, why: &str| match location {
        None => status(400, "the redirect leads nowhere"),
        Some(location) => Outcome { location: Some(text(&location)), ..status(code, why) },
    };
    if let Some(elsewhere) = &policies.redirect {
        let asked = routed.asked;
        let origin = asked.origin();
        let origin = origin.as_deref().map(str::as_bytes);
        let (is_relative, target) = (policies.relative_redirects, asked.target.as_bytes());
        let location = redirect::elsewhere(elsewhere, origin, is_relative, target, routed);
        return Some(to(elsewhere.code, location, "the rule is a redirect"));
    }
    let rewrite = policies.rewrite.as_ref()?;
    match rewrite::apply(rewrite, routed.asked.args().as_bytes(), routed) {
        Err(_) => Some(status(400, "the rewritten path is none that could be sent on")),
        Ok(Rewritten::Elsewhere(location)) => {
            Some(to(302, Some(location), "the rewrite's target is a URL"))
        }
        Ok(Rewritten::Uri { path, args }) => {
            let mark: &[u8] = if args.is_empty() { b"" } else { b"?" };
            told.outcome.rewritten = Some(text(&[&path, mark, &args].concat()));
            None
        }
    }
}

fn to_https<'g>(
    records: &impl Records<'g>,
    settings: SettingsView<'g>,
    policies: Option<&Policies>,
    routed: &Routed<'_, '_>,
) -> Option<Outcome> {
    let asked = routed.asked;
    let host = asked.normal_host();
    let has_certificate = || tls::has_certificate(records, host.as_bytes());
    let is_redirected =
        redirect::is_redirected(routed.rule?.https_redirect(), asked.is_https, has_certificate);
    if !is_redirected || asked.host.is_empty() {
        return None;
    }
    let port = policies.and_then(|policies| policies.redirect_port);
    let keeps_slash = policies.is_some_and(|policies| policies.keeps_trailing_slash);
    let target = asked.target.as_bytes();
    let location = redirect::location(asked.host.as_bytes(), port, target, keeps_slash);
    let code = settings.http_redirect_code().into();
    Some(Outcome { location: Some(text(&location)), ..status(code, "plain HTTP is sent to HTTPS") })
}

/// The backend and what it makes of the request.
fn destination<'g>(
    records: &impl Records<'g>,
    settings: SettingsView<'g>,
    policies: Option<&Policies>,
    routed: &Routed<'_, 'g>,
    patterns: &Patterns,
    counted: &impl Fn(&[u8], usize) -> Option<Counted>,
    told: &mut Explanation,
) {
    let own = routed.rule.and_then(|rule| rule.backend());
    let Some(primary) = own.or(settings.default_backend()) else {
        told.outcome = status(404, "no rule takes the path, and there is no default backend");
        if routed.rule.is_some() {
            told.outcome.why = "the rule names no backend, and there is no default one".into();
        }
        return;
    };
    let mut why: Cow<'_, str> = match own {
        Some(_) => "the rule's own".into(),
        None => "the default backend".into(),
    };
    let view = |id: &[u8]| BackendView::new(records.value(Kind::Backend, id).unwrap_or_default());
    let set =
        |id: &[u8]| EndpointsView::new(records.value(Kind::Endpoints, id).unwrap_or_default());
    let mut id = primary;
    if let Some((other, by)) = alternative(routed.asked, view(primary), patterns, view, set) {
        match other {
            Some(other) => (id, why) = (other, by.into()),
            None => why = by.into(),
        }
    }
    let fallback = policies.and_then(|policies| policies.fallback.as_ref());
    let fallback = fallback.and_then(|id| {
        // The record's own key outlives the policies.
        let value = records.value(Kind::Endpoints, id.as_str().as_bytes())?;
        (!EndpointsView::new(value).is_empty()).then_some(id.as_str().as_bytes())
    });
    let (id, why) = match fallback.filter(|_| set(id).is_empty()) {
        Some(fallback) => (fallback, "the rule's backend has no endpoint: its fallback".into()),
        None => (id, why),
    };
    let alternatives = alternatives(view(primary), view, set);
    let backend = backend(id, &why, view(id), set(id), alternatives, counted);
    told.outcome.why = match backend.endpoints.iter().filter(|e| e.eligible).count() {
        0 if backend.endpoints.is_empty() => "the backend has no endpoint".into(),
        0 => "every endpoint is busy".into(),
        count => format!("one of {} endpoints answers", count + backend.more_endpoints),
    };
    if !backend.endpoints.iter().any(|endpoint| endpoint.eligible) {
        told.outcome.status = Some(503);
    }
    told.backend = Some(backend);
}

/// Which alternative takes the request, and by what. Asked of the split itself, with the ends of chance and without
/// parts of the request: what changes its answer is the reason.
fn alternative<'g>(
    asked: &Asked,
    primary: BackendView<'g>,
    patterns: &Patterns,
    view: impl Fn(&[u8]) -> BackendView<'g>,
    set: impl Fn(&[u8]) -> EndpointsView<'g>,
) -> Option<(Option<&'g [u8]>, &'static str)> {
    primary.alternatives().next()?;
    let decide = |asked: &Asked, random| {
        let views = primary.alternatives().map(|id| (!set(id).is_empty()).then(|| view(id)));
        split::decide(primary.affinity(), views, asked, &patterns.of(b""), random)
    };
    let certain = |asked: &Asked| {
        let ends = (decide(asked, 0), decide(asked, u64::MAX));
        (ends.0 == ends.1).then_some(ends.0)
    };
    let Some(place) = certain(asked) else {
        return Some((None, "the rule's own, by weight: alternatives take their share"));
    };
    let mut bare = asked.clone();
    bare.headers.retain(|(name, _)| name.eq_ignore_ascii_case("cookie"));
    let without_headers = certain(&bare);
    bare.headers.clear();
    let why = match () {
        () if certain(&bare) == Some(place) => "by weight",
        () if without_headers == Some(place) => "by a cookie of the request",
        () => "by a header of the request",
    };
    Some((place.and_then(|place| primary.alternatives().nth(place)), why))
}

fn alternatives<'g>(
    primary: BackendView<'g>,
    view: impl Fn(&[u8]) -> BackendView<'g>,
    set: impl Fn(&[u8]) -> EndpointsView<'g>,
) -> Vec<Alternative> {
    let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| text(bytes));
    let all = primary.alternatives().map(|id| {
        let split = view(id).split();
        let number = |of: fn(&SplitView<'_>) -> u32| split.as_ref().map_or(0, of);
        Alternative {
            id: text(id),
            weight: number(|split| split.weight),
            weight_total: number(|split| split.weight_total.max(100)),
            header: split.as_ref().and_then(|split| some(split.header)),
            cookie: split.as_ref().and_then(|split| some(split.cookie)),
            has_endpoints: !set(id).is_empty(),
        }
    });
    all.collect()
}

fn backend(
    id: &[u8],
    why: &str,
    view: BackendView<'_>,
    set: EndpointsView<'_>,
    alternatives: Vec<Alternative>,
    counted: &impl Fn(&[u8], usize) -> Option<Counted>,
) -> Backend {
    let all_drain = set.iter().all(|endpoint| endpoint.is_draining());
    let limit = set.max_in_flight();
    let endpoints = set.iter().take(MAX_ENDPOINTS).enumerate().map(|(index, endpoint)| {
        let Counted { in_flight, ejected_ms } = counted(id, index).unwrap_or_default();
        let (eligible, why) = match () {
            () if limit > 0 && in_flight >= limit => {
                (false, Some(format!("busy: it has {in_flight} requests, its limit")))
            }
            () if endpoint.is_draining() && !all_drain => {
                (false, Some("draining: only where the others have failed".into()))
            }
            () if endpoint.is_draining() => (true, Some("draining, as all others are".into())),
            () if ejected_ms > 0 => {
                (false, Some(format!("failing: left out for {ejected_ms} ms, unless too many are")))
            }
            () => (true, None),
        };
        let address = endpoint.socket_address().to_string();
        Endpoint { address, weight: endpoint.weight(), eligible, why }
    });
    Backend {
        id: text(id),
        why: why.into(),
        algorithm: view.algorithm(),
        affinity_cookie: view.affinity().map(|affinity| text(affinity.name())),
        hash_key: view.hash_key().map(text),
        alternatives,
        endpoints: endpoints.collect(),
        more_endpoints: set.len().saturating_sub(MAX_ENDPOINTS),
    }
}

#[cfg(test)]
mod tests;
