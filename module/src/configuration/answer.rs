//! Answers of the endpoint.

use oxigress_core::wire::DecodeError;
use oxigress_core::wire::native::{Applied, Fault, Problem};
use oxigress_store::Live;
use serde::Serialize;

/// A whole response.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Of the body.
    pub content_type: &'static str,
    /// Names and values, beside length and type.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// What was wrong, for `GET /configuration`.
    pub error: Option<String>,
    /// Lines for the error log.
    pub log: Vec<String>,
    /// The connection is closed after it.
    pub is_last: bool,
}

/// `epoch.generation`: what `ETag` says and `If-Match` asks for, without the quotes.
pub fn tag(live: &Live) -> String {
    format!("{:016x}.{}", live.epoch, live.generation)
}

impl Answer {
    /// JSON.
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        Answer {
            status,
            content_type: "application/json",
            headers: Vec::new(),
            body: serde_json::to_vec(value).unwrap_or_default(),
            error: None,
            log: Vec::new(),
            is_last: false,
        }
    }

    /// A write that is live.
    pub fn applied(status: u16, live: &Live, ignored_fields: usize) -> Self {
        let epoch = format!("{:016x}", live.epoch);
        let applied = Applied { epoch, generation: live.generation, ignored_fields };
        Answer::json(status, &applied).with("ETag", format!("\"{}\"", tag(live)))
    }

    /// A refusal that `error` explains.
    pub fn problem(status: u16, error: impl Into<String>) -> Self {
        Answer::refusal(status, Problem { error: error.into(), ..Problem::default() })
    }

    /// A refusal with more to say.
    pub fn refusal(status: u16, problem: Problem) -> Self {
        let mut line = format!("{status}: {}", problem.error);
        if let Some(pointer) = problem.pointer.as_deref().filter(|pointer| !pointer.is_empty()) {
            line = format!("{line} (at {})", pointer.escape_default());
        }
        Answer { error: Some(line.clone()), log: vec![line], ..Answer::json(status, &problem) }
    }

    /// The body is not what it should be.
    pub fn undecodable(error: DecodeError) -> Self {
        let status = if error.is_version() { 426 } else { 400 };
        let pointer = Some(error.pointer);
        Answer::refusal(status, Problem { error: error.message, pointer, ..Problem::default() })
    }

    /// Several values of the body are not what they should be; the first is described, all are named.
    pub fn faulty(mut faults: Vec<DecodeError>) -> Self {
        let others = faults
            .drain(faults.len().min(1)..)
            .map(|fault| Fault { pointer: fault.pointer, error: fault.message });
        let others: Vec<_> = others.collect();
        let Some(first) = faults.pop() else { return Answer::problem(400, "the body is wrong") };
        let count = others.len();
        let (error, pointer) = (first.message, Some(first.pointer));
        let mut answer =
            Answer::refusal(400, Problem { error, pointer, others, ..Problem::default() });
        if count > 0 {
            answer.log.push(format!("400: {count} further records are refused"));
        }
        answer
    }

    /// The writer's view is old.
    pub fn conflict(live: &Live) -> Self {
        let live = tag(live);
        let error = format!("the live generation is {live}: PUT the whole snapshot");
        Answer::refusal(409, Problem { error, live: Some(live), ..Problem::default() })
    }

    /// Another writer is at work.
    pub fn busy() -> Self {
        Answer::problem(503, "another write is at work: try again").with("Retry-After", "1".into())
    }

    /// The zone belongs to an nginx that is being replaced, or to one that waits to replace another.
    pub fn taken_over() -> Self {
        let error = "another nginx has taken over or is about to: connect again";
        let busy = Answer::problem(503, error).with("Retry-After", "0".into());
        Answer { is_last: true, ..busy }
    }

    /// This method is not for this path.
    pub fn method_not_allowed(allowed: &str) -> Self {
        Answer::problem(405, format!("use one of {allowed}")).with("Allow", allowed.into())
    }

    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}
