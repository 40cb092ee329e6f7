//! The REWRITE phase: what nginx does about the answer of a decision.

use crate::conf::Declared;
use crate::request::Request;
use crate::route;
use crate::route::errors;
use nginx::{Code, Next, PhaseHandler};
use oxigress_core::decision::Answer;

/// The REWRITE phase, which routes requests of `ingress_router` locations.
pub struct Rewrite;

impl PhaseHandler for Rewrite {
    const NAME: &'static str = "rewrite";

    fn run(raw: &nginx::Request) -> Next<'_> {
        if raw.is_router() {
            let Some(request) = Request::of(raw) else { return Code::INTERNAL_ERROR.into() };
            return give_answer(raw, &route::decide(&request));
        }
        if raw.is_error_location() {
            // nginx has sent it there.
            let Some(request) = Request::of(raw) else { return Code::INTERNAL_ERROR.into() };
            return give_answer(raw, &errors::decide(&request));
        }
        not_routed(raw).into()
    }
}

fn give_answer<'r>(raw: &'r nginx::Request, answer: &Answer) -> Next<'r> {
    match answer {
        Answer::Forward => Code::DECLINED.into(),
        Answer::Respond(status) => Code::status(*status).into(),
        Answer::Text { code, body, media_type } => {
            send(raw, *code, (body, media_type.as_deref())).into()
        }
        Answer::Internal(path) => {
            raw.redirection(path).unwrap_or_else(|| Code::INTERNAL_ERROR.into())
        }
        Answer::Redirect { code, location } => {
            let added = if location.starts_with(b"/") {
                // nginx would put its own host and port before a path, which is meant as it is. Without a
                // location of its own it has no page for `msie_refresh`.
                raw.set_is_msie(false);
                raw.push_response_header(b"Location", location).map(|_| ())
            } else {
                raw.set_location(location)
            };
            added.map_or(Code::INTERNAL_ERROR, |()| Code::status(*code)).into()
        }
    }
}

/// Sends a body in the endpoint's place, as `return` does.
fn send(raw: &nginx::Request, status: u16, (body, media_type): (&[u8], Option<&str>)) -> Code {
    let begun = raw.begin_answer(media_type.is_none());
    if begun != Code::OK {
        return begun;
    }
    raw.set_status(status);
    let is_typed = media_type.is_none_or(|it| raw.set_content_type(it.as_bytes()).is_some());
    if is_typed { raw.send(body) } else { Code::INTERNAL_ERROR }
}

/// REWRITE in other locations: only auth subrequests and copies may pass through theirs.
fn not_routed(raw: &nginx::Request) -> Code {
    let (is_auth, is_mirror) = (raw.is_auth_location(), raw.is_mirror_location());
    if !is_auth && !is_mirror {
        return Code::DECLINED;
    }
    let is_ours = |request: Request<'_>| {
        is_auth && request.auth().is_some() || is_mirror && request.mirror().is_some()
    };
    match Request::of(raw).is_some_and(is_ours) {
        true => Code::DECLINED,
        false => Code::status(404),
    }
}
