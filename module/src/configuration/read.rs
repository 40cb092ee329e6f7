//! Reads.

use crate::configuration::StoreAccess;
use crate::configuration::answer::Answer;
use crate::configuration::answer::tag;
use crate::request::spans;
use crate::worker::Worker;
use crate::zone::records::GuardedRecords;
use nginx::ssl::sha256;
use oxigress_core::model::{BackendId, Endpoint, EndpointSet};
use oxigress_core::record::{CertificateView, EndpointsView, Kind, Records, decode_backend};
use oxigress_core::router::tls;
use oxigress_core::text::hex;
use oxigress_core::wire::compat::Element;
use oxigress_core::wire::native::{Status, WorkerStatus};
use serde_json::json;
use std::num::NonZeroU16;
use x509_parser::prelude::{FromDer, X509Certificate};

/// `GET /configuration`
pub fn status(worker: &Worker) -> Answer {
    let store = worker.reader().store();
    let live = store.live();
    let space = store.space();
    let workers = store.workers().into_iter();
    let journal = store.progress();
    let status = Status {
        epoch: format!("{:016x}", live.epoch),
        generation: live.generation,
        counts: Kind::ALL
            .iter()
            .map(|kind| (kind.label().to_owned(), u64::from(live.counts[*kind as usize])))
            .collect(),
        capacity_bytes: space.capacity_bytes as u64,
        free_bytes: space.free_bytes as u64,
        worker_processes: worker.processes(),
        workers: workers
            .map(|(slot, pid, generation)| WorkerStatus { slot, pid, generation })
            .collect(),
        journal_generation: (journal.agent != 0).then_some(journal.generation),
        last_error: Some(store.note()).filter(|note| !note.is_empty()),
    };
    let mut answer = Answer::json(200, &status);
    answer.headers.push(("ETag", format!("\"{}\"", tag(&live))));
    answer
}

/// `GET /configuration/general`: what was posted.
pub fn general(worker: &Worker) -> Answer {
    let guard = worker.reader().read();
    let posted = GuardedRecords(&guard).value(Kind::General, b"").unwrap_or(b"{}");
    Answer { body: posted.to_vec(), ..Answer::json(200, &json!({})) }
}

/// `POST /configuration/spans`: requests that have ended, taken out of the queue. The body has their records
/// ([`oxigress_core::telemetry::span::Finished`]) one after the other; it is empty when none wait.
pub fn spans() -> Answer {
    let (body, dropped) = spans::take();
    let answer =
        Answer { body, content_type: "application/octet-stream", ..Answer::json(200, &()) };
    answer.with("Oxigress-Spans-Dropped", dropped.to_string())
}

/// `GET /configuration/certs?hostname=H`: facts about the certificate of exactly that name, never its key.
pub fn certificate(worker: &Worker, query: &[u8]) -> Answer {
    let pairs = query.split(|byte| *byte == b'&');
    let mut hostnames = pairs.filter_map(|pair| pair.strip_prefix(b"hostname="));
    let Some(hostname) = hostnames.next().filter(|name| !name.is_empty()) else {
        return Answer::problem(400, "Hostname must be specified.");
    };
    let guard = worker.reader().read();
    let records = GuardedRecords(&guard);
    let facts = tls::exact_certificate_id(&records, hostname)
        .and_then(|id| records.value(Kind::Certificate, id))
        .and_then(|value| CertificateView(value).chain())
        .and_then(facts);
    match facts {
        Some(facts) => Answer::json(200, &facts),
        None => Answer::problem(404, "No key associated with this hostname."),
    }
}

fn facts(chain: &[u8]) -> Option<serde_json::Value> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(chain).ok()?;
    let (_, leaf) = X509Certificate::from_der(&pem.contents).ok()?;
    let names = leaf.subject_alternative_name().ok().flatten();
    let names: Vec<_> =
        names.iter().flat_map(|san| &san.value.general_names).map(|n| n.to_string()).collect();
    Some(json!({
        "subject": leaf.subject().to_string(),
        "names": names,
        "serial": leaf.raw_serial_as_string().replace(':', ""),
        "not_before": leaf.validity().not_before.to_string(),
        "not_after": leaf.validity().not_after.to_string(),
        "sha256": String::from_utf8_lossy(&hex::encode(&sha256(&pem.contents))),
    }))
}

/// `GET /configuration/backends`, in ingress-nginx's format, sorted by name.
///
/// `None`: a writer is at work.
pub fn backends(shared: &StoreAccess<'_>) -> Option<Answer> {
    let transaction = shared.write()?;
    let mut elements = Vec::new();
    transaction.for_each(|record| {
        if record.kind() != Kind::Backend as u8 {
            return;
        }
        let id = std::str::from_utf8(record.key()).ok().and_then(|id| BackendId::parse(id).ok());
        let (Some(id), Some(backend)) = (id, decode_backend(record.value())) else { return };
        let set = transaction.get(Kind::Endpoints as u8, record.key());
        let view = EndpointsView::new(set.map_or(&[], |set| set.value()));
        let endpoints = view.iter().filter_map(|endpoint| {
            let address = endpoint.socket_address();
            Some(Endpoint::new(address.ip(), NonZeroU16::new(address.port())?))
        });
        let set = EndpointSet::new(endpoints).unwrap_or_default();
        elements.push(Element::from_model(&id, &backend, &set));
    });
    elements.sort_by(|a, b| a.name.cmp(&b.name));
    Some(Answer::json(200, &elements))
}
