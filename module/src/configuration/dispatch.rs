//! What a request to the configuration endpoint asks for, and which function does it.
//!
//! `begin` decides from the request's head whether to answer at once or to read the body; `work` does the
//! rest, on the event loop or on a thread of nginx's pool. Reads of the whole store are work too: they hold
//! the writers' lock, so that nothing is freed under them.
//!
//! Source: docs/module/endpoint.md; ingress-nginx's paths and bodies below `/configuration`.

use crate::configuration::answer::{self, Answer};
use crate::configuration::{Head, StoreAccess, access, effort, explain, read, statistics, write};
use crate::worker::Worker;
use crate::zone::{Patience, ZoneLock};
use oxigress_core::explain::ExplainRequest;
use oxigress_core::policy::limits::Forgotten;
use oxigress_core::telemetry::metrics::{Buckets, Options};
use oxigress_core::text::percent;
use oxigress_store::{Role, Store};

/// Longer bodies are worked on by a thread: parsing and building this much takes about a millisecond.
const LONG_BYTES: usize = 64 * 1024;

/// What to do with a request.
pub enum Step {
    /// It is answered without its body.
    Answer(Answer),
    /// Its body is read, then it is worked on.
    Work(Job),
}

/// Work that needs the body or the whole store.
pub enum Job {
    /// `PUT` or `PATCH`, if the live generation is still this one.
    Native {
        /// The body is a delta.
        is_patch: bool,
        /// `epoch.generation`, as in `If-Match`.
        expected: Option<String>,
    },
    /// ingress-nginx's `POST /configuration/backends`.
    PostBackends,
    /// ingress-nginx's `POST /configuration/servers`.
    PostServers,
    /// ingress-nginx's `POST /configuration/general`.
    PostGeneral,
    /// `GET /configuration/backends`.
    GetBackends,
    /// `GET /configuration/stats`, of one backend or of all.
    Stats {
        /// Its id.
        backend: Option<String>,
    },
    /// `GET /configuration/explain`.
    Explain(Box<ExplainRequest>),
    /// `GET /metrics`.
    Metrics {
        /// What is told.
        options: Box<Options>,
        /// The bounds of the histograms; `None`: requests are not counted.
        buckets: Option<Box<Buckets>>,
        /// What the limits had no room for; `None` without `ingress_limits`.
        forgotten: Option<Forgotten>,
    },
}

/// Answers from the head alone, or says what is to be done.
pub fn begin(head: &Head<'_>, worker: &Worker) -> Step {
    if let Err(refusal) = access::check(head) {
        return Step::Answer(refusal);
    }
    if worker.reader().store().role() == Role::Follower {
        return Step::Answer(Answer::taken_over());
    }
    let is_get = matches!(head.method, b"GET" | b"HEAD");
    let path = head.path.strip_suffix(b"/").unwrap_or(head.path);
    let step = match (head.method, path) {
        (b"PUT" | b"PATCH", b"/configuration") => native(head, worker),
        (b"POST", b"/configuration/backends") => Step::Work(Job::PostBackends),
        (b"POST", b"/configuration/servers") => Step::Work(Job::PostServers),
        (b"POST", b"/configuration/general") => Step::Work(Job::PostGeneral),
        (b"POST", b"/configuration/spans") => Step::Answer(read::spans()),
        (_, b"/configuration") if is_get => Step::Answer(read::status(worker)),
        (_, b"/configuration/backends") if is_get => Step::Work(Job::GetBackends),
        (_, b"/configuration/stats") if is_get => stats(head),
        (_, b"/configuration/explain") if is_get => match ExplainRequest::from_query(head.query) {
            Ok(asked) => Step::Work(Job::Explain(Box::new(asked))),
            Err(error) => Step::Answer(Answer::problem(400, error.to_string())),
        },
        (_, b"/metrics") if is_get => metrics(head, worker),
        (_, b"/configuration/general") if is_get => Step::Answer(read::general(worker)),
        (_, b"/configuration/certs") if is_get => {
            Step::Answer(read::certificate(worker, head.query))
        }
        (_, b"/configuration") => Step::Answer(Answer::method_not_allowed("GET, PUT, PATCH")),
        (_, b"/configuration/servers") if is_get => {
            Step::Answer(Answer::problem(400, "Only POST requests are allowed!"))
        }
        (_, b"/configuration/certs") => {
            Step::Answer(Answer::problem(400, "Only GET requests are allowed!"))
        }
        (b"GET" | b"HEAD" | b"POST", _) => Step::Answer(Answer::problem(404, "Not found!")),
        _ => Step::Answer(Answer::problem(400, "Only POST and GET requests are allowed!")),
    };
    match step {
        Step::Work(job) if is_get => match head.is_chunked || head.content_length > Some(0) {
            true => Step::Answer(Answer::problem(400, "GET takes no body: send none")),
            false => Step::Work(job),
        },
        Step::Work(job) => match access::check_body(head) {
            Ok(()) => Step::Work(job),
            Err(refusal) => Step::Answer(refusal),
        },
        answer => answer,
    }
}

fn stats(head: &Head<'_>) -> Step {
    let mut pairs = head.query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let backend = match pairs.next().map(|pair| pair.strip_prefix(b"backend=")) {
        None => None,
        Some(id) => match id.and_then(percent::decode_text) {
            Some(id) if pairs.next().is_none() => Some(id),
            _ => {
                return Step::Answer(Answer::problem(
                    400,
                    "write ?backend=ID, percent-encoded, or nothing",
                ));
            }
        },
    };
    Step::Work(Job::Stats { backend })
}

fn metrics(head: &Head<'_>, worker: &Worker) -> Step {
    match Options::from_query(head.query) {
        Ok(options) => {
            let buckets = worker.buckets().copied().map(Box::new);
            let forgotten = worker.counts().map(|counts| counts.forgotten());
            Step::Work(Job::Metrics { options: Box::new(options), buckets, forgotten })
        }
        Err(error) => Step::Answer(Answer::problem(400, error.to_string())),
    }
}

fn native(head: &Head<'_>, worker: &Worker) -> Step {
    let is_patch = head.method == b"PATCH";
    let live = worker.reader().store().live();
    let expected =
        head.if_match.map(|value| String::from_utf8_lossy(value).trim_matches('"').to_owned());
    match &expected {
        Some(expected) if expected != "*" && *expected != answer::tag(&live) => {
            Step::Answer(Answer::conflict(&live))
        }
        None if is_patch => Step::Answer(Answer::problem(
            428,
            "a delta needs If-Match with the epoch.generation it was made for: send it, or PUT the whole",
        )),
        _ => Step::Work(Job::Native { is_patch, expected: expected.filter(|tag| tag != "*") }),
    }
}

/// Whether a job is too long for the event loop: by its body, or since it looks at all there is.
pub fn is_long(job: &Job, body_bytes: usize, store: &Store) -> bool {
    // Policies may be megabytes, and patterns are compiled.
    if matches!(job, Job::Explain(_)) {
        return true;
    }
    let is_of_one = matches!(job, Job::Stats { backend: Some(_) });
    // `Effort` says which of them are long.
    let is_write = matches!(job, Job::Native { is_patch: true, .. } | Job::PostGeneral);
    let looks_at_all = !is_of_one && !is_write;
    body_bytes > LONG_BYTES || looks_at_all && effort::records(store) > effort::MANY_RECORDS
}

/// Does a job; `None`: another writer is at work, and patience ran out. Any thread: touches the store only,
/// as its one writer.
pub fn work(
    job: &Job,
    body: &[u8],
    store: &Store,
    lock: &ZoneLock,
    patience: Patience,
) -> Option<Answer> {
    let shared = StoreAccess { store, lock, patience };
    let answer = match job {
        Job::Native { is_patch: false, expected } => write::put(body, expected.as_deref(), &shared),
        Job::Native { is_patch: true, expected } => {
            write::patch(body, expected.as_deref(), &shared)
        }
        Job::PostBackends => write::backends(body, &shared),
        Job::PostServers => write::servers(body, &shared),
        Job::PostGeneral => write::general(body, &shared),
        Job::GetBackends => read::backends(&shared),
        Job::Stats { backend } => statistics::stats(backend.as_deref(), &shared),
        Job::Explain(asked) => explain::explain(asked, &shared),
        Job::Metrics { options, buckets, forgotten } => {
            statistics::metrics(options, buckets.as_deref(), *forgotten, &shared)
        }
    }?;
    if let Some(error) = &answer.error {
        store.set_note(error);
    }
    Some(answer)
}
