//! What is asked of the controller's loop, and what it answers from.

use crate::rows;
use oxigress_core::model::Snapshot;
use oxigress_objects::World;
use oxigress_objects::verdict::{Severity, Verdicts};
use oxigress_publish::Writes;
use serde_json::{Value, json};
use std::time::SystemTime;
use tokio::sync::oneshot;

/// The tables that the page can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A row for each path of a host.
    Routes,
    /// A row for each backend.
    Backends,
    /// A row for the certificate of each host.
    Certificates,
    /// What there is to say about objects.
    Findings,
}

/// A question to the controller's loop.
#[derive(Debug)]
pub struct DashboardQuery {
    /// Rows of a kind, or the numbers of all.
    pub kind: Option<Kind>,
    /// The number of the first row.
    pub offset: usize,
    /// The most rows that are answered.
    pub limit: usize,
    /// A text that rows have; empty: all rows.
    pub text: String,
    /// Where the JSON goes.
    pub reply: oneshot::Sender<Value>,
}

/// What the loop has, as it is when it answers.
pub struct View<'v> {
    /// The objects that were translated.
    pub world: &'v World,
    /// What is served of them.
    pub snapshot: &'v Snapshot,
    /// What there is to say about them.
    pub verdicts: &'v Verdicts,
    /// What became of writes to nginx.
    pub writes: &'v Writes,
    /// The last changes, the newest last.
    pub changes: &'v [LiveChange],
}

/// A change that became live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveChange {
    /// How long ago it became live, in seconds.
    pub ago_seconds: f64,
    /// How long it took until it was live, in seconds.
    pub seconds: f64,
}

impl DashboardQuery {
    /// Answers. Whoever asked may have gone.
    pub fn answer(self, view: &View<'_>) {
        let answer = match self.kind {
            None => numbers(view),
            Some(kind) => rows::page(kind, view, &self.text, self.offset, self.limit),
        };
        let _ = self.reply.send(answer);
    }
}

fn seconds(at: Option<SystemTime>) -> Option<u64> {
    Some(at?.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

fn numbers(view: &View<'_>) -> Value {
    let View { world, snapshot, verdicts, writes, changes } = view;
    let of = |severity: Severity| {
        verdicts.values().filter(|verdict| verdict.severity == severity).count()
    };
    let change = |one: &LiveChange| json!({"ago_seconds": one.ago_seconds, "seconds": one.seconds});
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ingresses": world.ingresses.len(),
        "services": world.services.len(),
        "hosts": snapshot.servers.len(),
        "routes": snapshot.servers.values().map(|server| server.rules.len()).sum::<usize>(),
        "backends": snapshot.backends.len(),
        "endpoints": snapshot.endpoints.values().map(|set| set.as_slice().len()).sum::<usize>(),
        "certificates": snapshot.names.len(),
        "findings": verdicts.len(),
        "severities": {
            "rejected": of(Severity::Rejected),
            "warnings": of(Severity::Warning),
            "notes": of(Severity::Note),
        },
        "writes": {
            "applied": writes.applied,
            "refused": writes.refused,
            "withheld": writes.withheld,
            "is_last_applied": writes.is_last_applied,
            "applied_at": seconds(writes.applied_at),
        },
        "changes": changes.iter().map(change).collect::<Vec<_>>(),
    })
}
