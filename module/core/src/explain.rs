//! Why a request goes where it goes: the rule that wins and those that lose, policies, backend and endpoints, from the
//! records of one generation.
//!
//! Shape:   [`ExplainRequest`] in, [`Explanation`] out. The decision is [`decision::decide`], as in nginx's REWRITE phase, with a trace
//!          that records its steps.
//! Errors:  none; what a real request would be refused for is the outcome. What only a connection knows (address,
//!          client certificate, password) is not decided but named, in [`Explanation::conditions`].
//! Secrets: keys, password hashes, queries of auth servers and values of headers that may be credentials are not in it.

mod offline;
mod recording;
mod request;
mod serving;
mod shown;

pub(crate) use offline::Offline;
pub(crate) use recording::Recording;
pub(crate) use request::RequestFacts;
pub use request::{ExplainRequest, InvalidQuery};

use crate::decision::{self, Answer, Decision, Facts, Generation, Reason};
use crate::model::{Algorithm, PathPattern};
use crate::patterns::Patterns;
use crate::record::Records;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What becomes of a request, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The host as nginx understands it.
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
    /// What the client is answered, and what the endpoint sees.
    pub outcome: ExplainedAnswer,
    /// Who serves, where the request gets that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
}

/// The server that a request was given to, by its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its host: a name, `*.` and a name, or `_`.
    pub host: String,
    /// How the host was matched: `exact`, `wildcard` or `default`.
    pub found: String,
}

/// A rule of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The path that the rule takes.
    pub path: PathPattern,
    /// The namespace of the Ingress that the rule comes from.
    pub namespace: String,
    /// The name of that Ingress.
    pub ingress: String,
    /// The name of the Service that the rule leads to.
    pub service: String,
    /// The port of that Service, by number or name.
    pub port: String,
    /// Whether this rule takes the request.
    pub wins: bool,
    /// Why it does, or does not.
    pub why: String,
}

/// What the client is answered, and what the endpoint sees of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedAnswer {
    /// nginx answers by itself, with this status; absent: the backend answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The URL that a redirect leads to; absent: it is no redirect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Path and query as the endpoint sees them, where a rewrite changes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<String>,
    /// The reason for this answer, as a sentence.
    pub why: String,
}

/// The backend that serves the request, and how one of its endpoints is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its id.
    pub id: String,
    /// The reason for which this backend serves, as a sentence.
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
    /// Its first endpoints, as many as are shown.
    pub endpoints: Vec<Endpoint>,
    /// How many more endpoints it has.
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
    /// Of `weight_total` requests, this alternative gets so many.
    pub weight: u32,
    /// The sum that `weight` is a part of.
    pub weight_total: u32,
    /// The header that decides before the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The name of the cookie that sends a request to this alternative; absent: none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// Without endpoints it takes nothing.
    pub has_endpoints: bool,
}

/// One endpoint of a backend, with what the module counts of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address and port.
    pub address: String,
    /// Its weight beside the other endpoints of the backend.
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
    /// How many requests are in flight to it, from all workers.
    pub in_flight: u32,
    /// So long it is left out because it failed.
    pub ejected_ms: u64,
}

/// Explains a request. `counted` knows endpoints by backend and place; offline nobody does.
pub fn explain<'g>(
    records: &impl Records<'g>,
    asked: &ExplainRequest,
    patterns: &Patterns,
    counted: impl Fn(&[u8], usize) -> Option<Counted>,
) -> Explanation {
    let host = asked.normal_host();
    let Some(path) = asked.normal_path() else {
        let outcome = status(400, "nginx takes no such path");
        return Explanation { host, outcome, ..Explanation::default() };
    };
    let facts = RequestFacts { asked, host: &host, path: &path };
    let generation = Offline { records, patterns, counted: &counted };
    let mut trace = Recording::new(&host);
    let decision = decision::decide(&generation, &facts, &mut trace);
    let serving = trace.backend.and_then(|why| serving::backend(&generation, &decision, why));
    let (backend, forwarded) = serving.unzip();
    let mut conditions = trace.conditions;
    if decision.answer == Answer::Forward {
        conditions.extend(trace.access_conditions);
    }
    Explanation {
        path: text(&path),
        server: trace.server,
        rules: trace.rules,
        other_rules: trace.other_rules,
        policies: trace.policies,
        conditions,
        outcome: outcome(&decision, trace.reason, forwarded, facts.args()),
        backend,
        host,
    }
}

fn outcome<'g, G: Generation<'g>>(
    decision: &Decision<'g, G>,
    reason: Option<Reason>,
    forwarded: Option<ExplainedAnswer>,
    own_args: &[u8],
) -> ExplainedAnswer {
    let why = reason.map_or("", Reason::text);
    let rewritten = decision
        .edits
        .as_ref()
        .and_then(|edits| edits.uri.as_ref())
        .filter(|_| decision.route.backend().is_some());
    let rewritten = rewritten.map(|(path, args)| {
        let mark: &[u8] = if args.is_empty() { b"" } else { b"?" };
        // A query that is not the client's may have what opens the endpoint.
        let is_hidden = !args.is_empty() && **args != *own_args;
        let args = if is_hidden { shown::HIDDEN.as_bytes() } else { args };
        text(&[path, mark, args].concat())
    });
    let answer = match &decision.answer {
        Answer::Forward => forwarded.unwrap_or_default(),
        Answer::Respond(code) => status(seen_by_client(*code), why),
        Answer::Text { code, .. } => status(*code, why),
        Answer::Redirect { code, location } => {
            ExplainedAnswer { location: Some(text(location)), ..status(*code, why) }
        }
        Answer::Internal(page) => {
            let why = format!("{why}: the host's error page answers");
            ExplainedAnswer { location: Some(text(page)), why, ..ExplainedAnswer::default() }
        }
    };
    ExplainedAnswer { rewritten, ..answer }
}

/// nginx has statuses of its own for certificates that are missing or wrong; its client sees 400.
fn seen_by_client(status: u16) -> u16 {
    if matches!(status, 494..=497) { 400 } else { status }
}

fn status(status: u16, why: &str) -> ExplainedAnswer {
    ExplainedAnswer { status: Some(status), why: why.into(), ..ExplainedAnswer::default() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
