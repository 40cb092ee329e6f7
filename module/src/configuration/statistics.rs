//! What is counted: `GET /configuration/stats` and `GET /metrics`.

use crate::configuration::StoreAccess;
use crate::configuration::answer::Answer;
use crate::system::memory::monotonic_milliseconds;
use crate::zone::ZoneLock;
use crate::zone::counters::collect;
use crate::zone::endpoints::statistics;
use crc32fast::Hasher;
use oxigress_core::policy::limits::Forgotten;
use oxigress_core::record::{CertificateView, EndpointsView, Kind};
use oxigress_core::telemetry::metrics::{Buckets, Exposition, Options, PREFIX, number, title};
use oxigress_store::{Record, Transaction};
use serde::Serialize;
use std::fmt::Write;

/// A backend's endpoints, as they are now.
#[derive(Serialize)]
struct BackendStatistics {
    backend: String,
    in_flight: u64,
    endpoints: Vec<EndpointStatistics>,
}

#[derive(Serialize)]
struct EndpointStatistics {
    address: String,
    weight: u32,
    draining: bool,
    in_flight: u32,
    /// Moving average of the latency; 0: not known.
    ewma_seconds: f32,
    requests: u64,
    failures: u64,
    consecutive_failures: u32,
    ejections: u32,
    ejected_ms: u64,
}

/// `GET /configuration/stats`, sorted by backend.
///
/// `None`: a writer is at work.
pub fn stats(backend: Option<&str>, shared: &StoreAccess<'_>) -> Option<Answer> {
    let transaction = shared.write()?;
    if let Some(id) = backend {
        let Some(set) = transaction.get(Kind::Endpoints as u8, id.as_bytes()) else {
            return Some(Answer::problem(404, format!("no backend \"{}\"", id.escape_debug())));
        };
        return Some(Answer::json(200, &of_set(&set)));
    }
    let mut all = Vec::new();
    transaction.for_each(|record| {
        if record.kind() == Kind::Endpoints as u8 {
            all.push(of_set(&record));
        }
    });
    drop(transaction);
    all.sort_by(|a, b| a.backend.cmp(&b.backend));
    Some(Answer::json(200, &all))
}

fn of_set(set: &Record<'_>) -> BackendStatistics {
    let now = monotonic_milliseconds();
    let view = EndpointsView::new(set.value());
    let endpoints: Vec<_> = view
        .iter()
        .enumerate()
        .map(|(index, endpoint)| {
            let cell = statistics(set, index);
            let (requests, failures) = cell.map(|cell| cell.totals()).unwrap_or_default();
            let (ejections, ejected_ms) = cell.map(|cell| cell.ejections(now)).unwrap_or_default();
            EndpointStatistics {
                address: endpoint.socket_address().to_string(),
                weight: endpoint.weight(),
                draining: endpoint.is_draining(),
                in_flight: cell.map_or(0, |cell| cell.in_flight()),
                ewma_seconds: cell.map_or(0.0, |cell| cell.latency(now)),
                requests,
                failures,
                consecutive_failures: cell.map_or(0, |cell| cell.failures_in_a_row()),
                ejections,
                ejected_ms,
            }
        })
        .collect();
    BackendStatistics {
        backend: String::from_utf8_lossy(set.key()).into_owned(),
        in_flight: endpoints.iter().map(|endpoint| u64::from(endpoint.in_flight)).sum(),
        endpoints,
    }
}

/// `GET /metrics`
///
/// `None`: a writer is at work.
pub fn metrics(
    options: &Options,
    buckets: Option<&Buckets>,
    forgotten: Option<Forgotten>,
    shared: &StoreAccess<'_>,
) -> Option<Answer> {
    let transaction = shared.write()?;
    let mut exposition = Exposition::new(options.clone());
    let mut text = String::new();
    zone(&mut text, options, &transaction);
    if buckets.is_some() {
        collect(&transaction, &mut exposition);
    }
    // Writing it takes longer than reading it.
    drop(transaction);
    if let Some(forgotten) = forgotten {
        limits(&mut text, options, forgotten);
    }
    match buckets {
        Some(buckets) => text += &exposition.text(buckets),
        None => text += "# Requests are not counted: add ingress_metrics to nginx.conf.\n",
    }
    Some(Answer {
        content_type: "text/plain; version=0.0.4; charset=utf-8",
        body: text.into_bytes(),
        ..Answer::json(200, &())
    })
}

/// Equal for equal configurations, whatever order they came in: replicas that serve the same tell the same. Keys
/// of certificates have no part in it.
fn hash(transaction: &Transaction<'_, ZoneLock>) -> u32 {
    let mut sum = 0_u32;
    transaction.for_each(|record| {
        let value = match record.kind() == Kind::Certificate as u8 {
            true => CertificateView(record.value()).chain().unwrap_or_default(),
            false => record.value(),
        };
        let mut hasher = Hasher::new();
        hasher.update(&[record.kind()]);
        hasher.update(record.key());
        hasher.update(value);
        sum = sum.wrapping_add(hasher.finalize());
    });
    sum
}

/// What a full table of limits cost.
fn limits(text: &mut String, options: &Options, forgotten: Forgotten) {
    let labels = options.constant_labels();
    let name = "oxigress_limits_forgotten_total";
    let help = "Counts that were given up because ingress_limits is too small";
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
    let comma = if labels.is_empty() { "" } else { "," };
    for (kind, value) in [("rate", forgotten.rates), ("connections", forgotten.connections)] {
        let _ = writeln!(text, "{name}{{{labels}{comma}limit=\"{kind}\"}} {value}");
    }
}

/// What is live and how much room there is: names of our own, since the reference has nothing like it.
fn zone(text: &mut String, options: &Options, transaction: &Transaction<'_, ZoneLock>) {
    let space = transaction.space();
    let labels = options.constant_labels();
    let (_, generation) = transaction.base();
    let hash_help = "Hash of the live configuration; replicas with equal values serve the same";
    title(text, "config_hash", "gauge", hash_help);
    let _ = writeln!(text, "{PREFIX}config_hash{{{labels}}} {}", hash(transaction));
    for (name, help, value) in [
        ("oxigress_generation", "The generation that is live", generation as f64),
        ("oxigress_zone_capacity_bytes", "Shared memory", space.capacity_bytes as f64),
        ("oxigress_zone_free_bytes", "Shared memory that is free", space.free_bytes as f64),
    ] {
        let value = number(value);
        let _ =
            writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{{{labels}}} {value}");
    }
}
