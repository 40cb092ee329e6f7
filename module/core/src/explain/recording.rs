//! The trace of a decision, as an explanation tells it.

use super::{Rule, Server, shown, text};
use crate::decision::{BackendReason, Reason, Trace};
use crate::model::HostPattern;
use crate::model::policy::{Access, ClientCertificates, Limits, Policies, VerifyClient};
use crate::patterns::Patterns;
use crate::record::{MatchResult, MatchedRule, ServerView};
use crate::router::ServerMatch;
use crate::text::count;
use serde_json::Value;

/// Most rules that are told of one server.
const MAX_RULES: usize = 100;

/// The steps of a decision.
pub(crate) struct Recording<'h> {
    host: &'h str,
    pub server: Option<Server>,
    pub rules: Vec<Rule>,
    pub other_rules: usize,
    pub policies: Option<Value>,
    /// What the host asks of its clients.
    pub conditions: Vec<String>,
    /// What policies ask of requests that go on to a backend.
    pub access_conditions: Vec<String>,
    pub backend: Option<BackendReason>,
    pub reason: Option<Reason>,
}

impl<'h> Recording<'h> {
    pub fn new(host: &'h str) -> Self {
        Recording {
            host,
            server: None,
            rules: Vec::new(),
            other_rules: 0,
            policies: None,
            conditions: Vec::new(),
            access_conditions: Vec::new(),
            backend: None,
            reason: None,
        }
    }
}

impl Trace for Recording<'_> {
    fn server(&mut self, found: Option<ServerMatch>) {
        self.server = found.map(|found| match found {
            ServerMatch::Exact => Server { host: self.host.into(), found: "exact".into() },
            ServerMatch::Wildcard => {
                let parent = self.host.find('.').and_then(|dot| self.host.get(dot..));
                let host = format!("*{}", parent.unwrap_or_default());
                Server { host, found: "wildcard".into() }
            }
            ServerMatch::Default => {
                Server { host: HostPattern::DEFAULT.into(), found: "default".into() }
            }
        });
    }

    fn moved(&mut self) {
        self.rules.clear();
    }

    fn rules(
        &mut self,
        server: &ServerView<'_>,
        path: &[u8],
        patterns: &Patterns,
        winner: Option<&MatchedRule<'_>>,
    ) {
        let mut considered = server.compared(path, patterns, winner);
        considered.retain(|considered| !considered.rule.is_unclaimed());
        let claimed = server.rules().filter(|rule| !rule.is_unclaimed()).count();
        self.other_rules = claimed.saturating_sub(considered.len());
        self.rules.extend(considered.into_iter().take(MAX_RULES).map(|considered| {
            let [_, namespace, ingress, service, port, _] = considered.rule.texts().map(text);
            let wins = matches!(considered.result, MatchResult::Wins | MatchResult::LacksSlash);
            let why = considered.result.why().into();
            Rule { path: considered.path, namespace, ingress, service, port, wins, why }
        }));
    }

    fn client_certificate(&mut self, asked: &ClientCertificates) {
        if asked.verify == VerifyClient::Off {
            return;
        }
        self.conditions.push(match &asked.subject {
            Some(subject) => {
                format!("a client certificate whose subject matches {}", subject.as_str())
            }
            None => format!("a client certificate ({:?})", asked.verify).to_lowercase(),
        });
    }

    fn policies(&mut self, policies: &Policies) {
        self.policies = Some(shown::shown(policies));
        if let Some(access) = &policies.access {
            access_conditions(access, &mut self.access_conditions);
        }
        if let Some(limits) = &policies.limits {
            limit_conditions(limits, &mut self.access_conditions);
        }
    }

    fn backend(&mut self, reason: BackendReason) {
        self.backend = Some(reason);
    }

    fn answer(&mut self, reason: Reason) {
        self.reason = Some(reason);
    }
}

fn access_conditions(access: &Access, told: &mut Vec<String>) {
    if let Some(allow) = &access.allow {
        told.push(format!("a client address in {}", networks(allow.len())));
    }
    if !access.deny.is_empty() {
        told.push(format!("no client address in {}", networks(access.deny.len())));
    }
    if let Some(basic) = &access.basic {
        told.push(format!("a name and a password for {:?}", basic.realm));
    }
    if let Some(external) = &access.external {
        told.push(format!("approval by auth server {}", external.to.host.as_str()));
    }
    if access.any && told.len() > 1 {
        told.push("satisfy: any — one of the access conditions is enough".into());
    }
}

fn networks(number: usize) -> String {
    match number {
        1 => "a network".into(),
        number => format!("one of {number} networks"),
    }
}

fn requests(number: impl TryInto<usize>) -> String {
    count(number.try_into().unwrap_or(usize::MAX), "request")
}

fn limit_conditions(limits: &Limits, told: &mut Vec<String>) {
    let rates = [(limits.per_second, "second"), (limits.per_minute, "minute")];
    for (limit, unit) in rates {
        let Some(limit) = limit else { continue };
        told.push(format!("at most {} per {unit} and client", requests(limit.requests)));
    }
    if let Some(limit) = limits.connections {
        told.push(format!("at most {} at once per client", requests(limit.requests)));
    }
}
