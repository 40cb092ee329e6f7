//! The patterns in a document: checked apart from decoding, since a document is decoded on the event loop and patterns
//! are compiled on a thread.

use super::native::Upsert;
use super::{DecodeError, pointer_step};
use crate::model::policy::HeaderPattern;
use crate::model::{PathPattern, Rule, Selection, Server, Snapshot, ValueMatch};
use crate::patterns::{Allowance, check_length, is_plain, path_is_valid, pattern_is_valid};
use std::collections::HashSet;
use std::fmt::Display;

/// The patterns in a document's tables that have to be compiled.
#[derive(Default)]
pub struct Patterns<'d> {
    all: Vec<(Pointer<'d>, Meaning<'d>)>,
}

enum Meaning<'d> {
    Path(&'d str),
    Header(&'d HeaderPattern),
    Value(&'d ValueMatch),
    Subject(&'d str),
}

/// The place of a pattern, formatted only if it is refused.
struct Pointer<'d> {
    table: &'static str,
    key: &'d dyn Display,
    field: &'static str,
    index: usize,
}

impl<'d> From<&'d Snapshot> for Patterns<'d> {
    fn from(snapshot: &'d Snapshot) -> Self {
        let mut found = Patterns::default();
        found.put_settings(&snapshot.settings);
        found.put_tables(&snapshot.servers, &snapshot.tls);
        found.put_servers("/listener_servers", &snapshot.listener_servers);
        found
    }
}

impl<'d> From<&'d Upsert> for Patterns<'d> {
    fn from(upsert: &'d Upsert) -> Self {
        let mut found = Patterns::default();
        upsert.settings.iter().for_each(|settings| found.put_settings(settings));
        found.put_tables(&upsert.servers, &upsert.tls);
        found.put_servers("/listener_servers", &upsert.listener_servers);
        found
    }
}

impl<'d> Patterns<'d> {
    /// There are none, so that the document can be applied on the event loop.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Compiles each once, as it is done for what is served; answers those that cannot be, with their JSON pointers below
    /// `tables`. Aliases have the same patterns as their hosts.
    pub fn faults(&self, tables: &str) -> impl Iterator<Item = DecodeError> {
        let mut valid = HashSet::new();
        // The controller has charged the namespaces of these patterns.
        let any = Allowance::unlimited;
        self.all.iter().filter_map(move |(at, meaning)| {
            let checked = match meaning {
                Meaning::Path(text) if valid.contains(text) => Ok(()),
                Meaning::Path(text) => {
                    path_is_valid(text, any()).inspect(|()| _ = valid.insert(*text))
                }
                Meaning::Header(pattern) => {
                    pattern.regex().map_or(Ok(()), |text| pattern_is_valid(&text, any()))
                }
                Meaning::Value(value) => {
                    value.regex().map_or(Ok(()), |text| pattern_is_valid(&text, any()))
                }
                Meaning::Subject(text) => pattern_is_valid(text, any()),
            };
            checked.err().map(|why| DecodeError::new(at.written(tables), why.to_string()))
        })
    }

    fn put_settings(&mut self, settings: &'d crate::model::Settings) {
        let lists = [
            ("/blocked_user_agents", &settings.blocked_user_agents),
            ("/blocked_referers", &settings.blocked_referers),
        ];
        for (field, list) in lists {
            for (index, pattern) in list.iter().enumerate() {
                if pattern.regex().is_some() {
                    let at = Pointer { table: "/settings", key: &"", field, index };
                    self.all.push((at, Meaning::Header(pattern)));
                }
            }
        }
    }

    fn put_tables(
        &mut self,
        servers: &'d std::collections::BTreeMap<crate::model::HostPattern, crate::model::Server>,
        tls: &'d std::collections::BTreeMap<
            crate::model::HostPattern,
            crate::model::policy::TlsPolicy,
        >,
    ) {
        self.put_servers("/servers", servers);
        for (host, policy) in tls {
            let client = policy.client.as_ref();
            if let Some(subject) = client.and_then(|client| client.subject.as_ref()) {
                let at = Pointer { table: "/tls", key: host, field: "/client/subject", index: 0 };
                self.all.push((at, Meaning::Subject(subject.as_str())));
            }
        }
    }
}

impl<'d> Patterns<'d> {
    fn put_servers<K: Display>(
        &mut self,
        table: &'static str,
        servers: &'d std::collections::BTreeMap<K, Server>,
    ) {
        for (host, server) in servers {
            for (index, rule) in server.rules.iter().enumerate() {
                if let PathPattern::Regex(text) = &rule.path
                    && !(is_plain(text) && check_length(text).is_ok())
                {
                    let at = Pointer { table, key: host, field: "/rules", index };
                    self.all.push((at, Meaning::Path(text)));
                }
                for value in values(rule).filter(|value| value.regex().is_some()) {
                    let at = Pointer { table, key: host, field: "/rules", index };
                    self.all.push((at, Meaning::Value(value)));
                }
            }
        }
    }
}

/// The values that a rule asks for.
fn values(rule: &Rule) -> impl Iterator<Item = &ValueMatch> {
    let selection = rule.selection.as_deref().into_iter();
    selection.flat_map(|Selection { headers, query, .. }| headers.iter().chain(query))
}

impl Pointer<'_> {
    fn written(&self, tables: &str) -> String {
        let (table, field, index) = (self.table, self.field, self.index);
        let key = pointer_step(&self.key.to_string());
        match table {
            "/servers" | "/listener_servers" => {
                format!("{tables}{table}/{key}{field}/{index}/path")
            }
            "/settings" => format!("{tables}{table}{field}/{index}"),
            _ => format!("{tables}{table}/{key}{field}"),
        }
    }
}
