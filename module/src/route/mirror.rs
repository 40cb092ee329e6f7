//! Copies of requests for another server: subrequests that nobody waits for.
//!
//! What nginx's own mirror module does, with a target of the policies' own: the body is read first unless the copy
//! has none, the copy goes through a location of nginx.conf (`ingress_mirror`), and its answer is dropped (`upstream/discard.rs` of `module/nginx`). The answer to
//! the client does not wait for it. As with nginx's module the request ends only when its copy has: until then
//! its HTTP/1.1 connection takes no other request.
#![allow(unsafe_code)]

use crate::conf::Declared;
use crate::conf::Scheme;
use crate::request::Request;
use crate::request::route::Names;
use crate::request::route::NewRoute;
use crate::request::spans::{self, CallPlace};
use crate::route;
use nginx::{AfterBody, BodyHandler, Code, Ended, Kind, Next, PhaseHandler};
use oxigress_core::http::header;
use oxigress_core::model::policy::{HeaderValue, Mirror, Template};
use oxigress_core::telemetry::span::CallKind;
use oxigress_core::text::template::Part;
use std::cell::Cell;
use std::ptr::NonNull;

/// How far the copy of a request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copied {
    /// It was not thought of.
    #[default]
    Not,
    /// The body is being read.
    Reading,
    /// It was sent, or given up.
    Done,
}

/// What a subrequest is a copy for; `None`: it is none.
#[derive(Default)]
pub struct Mirrored(Cell<Option<NonNull<Mirror>>>);

impl<'r> Request<'r> {
    /// How far its copy has come.
    fn copied(&self) -> Copied {
        self.part_of_route().unwrap_or_default()
    }

    /// Notes how far its copy has come.
    fn set_copied(&self, copied: Copied) {
        self.set_part_of_route(copied);
    }

    /// What this subrequest is a copy for; `None`: it is none.
    pub fn mirror(&self) -> Option<&'r Mirror> {
        // SAFETY: of the policies that the main request holds until its pool goes, or kept in that pool by `named`.
        self.part::<Mirrored>()?.0.get().map(|mirror| unsafe { mirror.as_ref() })
    }

    /// Makes a copy of a subrequest, for what its main request's policies say; `None` when memory is out.
    fn set_mirror(&self, mirror: &'r Mirror) -> Option<()> {
        self.part_or_new::<Mirrored>().map(|mirrored| mirrored.0.set(Some(NonNull::from(mirror))))
    }
}

/// Sends the copies, after the headers of a request were changed.
pub struct Precontent;

impl PhaseHandler for Precontent {
    const NAME: &'static str = "mirror";
    const PANICKED: Code = Code::DECLINED;

    fn run(raw: &nginx::Request) -> Next<'_> {
        match Request::of(raw).filter(|request| request.policies().is_some()) {
            Some(request) => copy(raw, &request),
            None => Code::DECLINED.into(),
        }
    }
}

/// Not in line: a request without policies does not pay for its frame.
#[inline(never)]
fn copy<'r>(raw: &'r nginx::Request, request: &Request<'r>) -> Next<'r> {
    if !request.is_main() || request.is_error() {
        return Code::DECLINED.into();
    }
    let mut mirrors = mirrors(request).peekable();
    if mirrors.peek().is_none() {
        return Code::DECLINED.into();
    }
    match request.copied() {
        Copied::Done => return Code::DECLINED.into(),
        Copied::Reading => return Code::DONE.into(),
        Copied::Not => {}
    }
    if mirrors.all(|mirror| mirror.without_body) {
        request.set_copied(Copied::Done);
        send_all(request);
        return Code::DECLINED.into();
    }
    request.set_copied(Copied::Reading);
    raw.reading::<Body>()
}

/// Runs when the body has been read: the request goes on where it was. The body is the copy's too: it stays when the
/// request has sent it.
struct Body;

impl BodyHandler for Body {
    const NAME: &'static str = "mirror_body";
    const PANICKED: AfterBody = AfterBody::RunPhases;

    fn run(raw: &nginx::Request) -> AfterBody {
        if let Some(request) = Request::of(raw) {
            request.set_copied(Copied::Done);
            send_all(&request);
        }
        AfterBody::RunPhases
    }
}

fn mirrors<'r>(request: &Request<'r>) -> impl Iterator<Item = &'r Mirror> + use<'r> {
    request.policies().into_iter().flat_map(|policies| policies.source.mirrors())
}

fn send_all(request: &Request<'_>) {
    let is_meant = |mirror: &&Mirror| match mirror.share {
        Some((part, all)) => request.worker().random() % u64::from(all.get()) < u64::from(part),
        None => true,
    };
    for mirror in mirrors(request).filter(is_meant) {
        if try_send(request, mirror).is_none() {
            request.log_error(format_args!(
                "ingress: the copy of the request for mirror {:?} is not sent: nginx.conf has no \"ingress_mirror\" location \
                 for it, its target is no path, or memory is out",
                mirror.to.host.as_str()
            ));
        }
    }
}

/// `None`: nginx.conf has no location for it, its target is none, or memory is out.
fn try_send(request: &Request<'_>, mirror: &Mirror) -> Option<()> {
    let raw = request.nginx();
    let server = route::server(request, &mirror.to, target(request, &mirror.target)?)?;
    let location = raw.mirror_location(Scheme::of(server.https))?;
    let (subrequest, copied) = raw.subrequest(location, true, Kind::Background, Copy::default())?;
    subrequest.copy_method(raw)?;
    subrequest.set_target(&server.target)?;
    // An answer of 101 would take the client's connection.
    subrequest.forget_upgrade();
    if mirror.without_body {
        subrequest.set_no_body()?;
    }
    subrequest.set_header_only(true);
    write_headers(request, subrequest, copied)?;
    let copy = Request::of(subrequest)?;
    // Without it, it is answered with 404 where it arrives.
    copy.set_mirror(named(copy.nginx(), mirror, &server.host)?)?;
    let guard = copy.worker().reader().read();
    let endpoint_set = route::find_endpoint_set(&guard, &server.backend, request.decided());
    let names = Some(Names::of_backend(&server.backend));
    copy.set_route(NewRoute { names, endpoint_set, ..NewRoute::default() }).then_some(())
}

/// The mirror with the name of the server that the request has named, in the pool of the copy.
fn named<'m>(copy: &'m nginx::Request, mirror: &'m Mirror, host: &[u8]) -> Option<&'m Mirror> {
    if mirror.to.variable_host.is_none() {
        return Some(mirror);
    }
    let mut named = mirror.clone();
    named.to.host = HeaderValue::parse(str::from_utf8(host).ok()?).ok()?;
    copy.pool().keep(named)
}

/// Gives the copy the headers of its request, and of a traced one a span of its own; `None` when memory is out.
fn write_headers(request: &Request<'_>, subrequest: &nginx::Request, copy: &Copy) -> Option<()> {
    let Some(trace) = spans::of(request) else { return subrequest.pass_headers(|_| true) };
    let (call, context) = trace.begin_call(request, CallKind::Mirror);
    copy.call.set(Some(call));
    subrequest.pass_headers(|header| {
        !context.iter().any(|(name, _)| header::is_alike(name.as_bytes(), header.name()))
    })?;
    let mut context = context.iter().filter(|(_, value)| !value.is_empty());
    context.try_for_each(|(name, value)| subrequest.push_own_header(name.as_bytes(), value))
}

#[derive(Default)]
struct Copy {
    /// Of a traced request: its span.
    call: Cell<Option<CallPlace>>,
}

impl Ended for Copy {
    const NAME: &'static str = "mirror_ended";

    /// A body that could not be read to its end would end the request too.
    fn ended(&self, subrequest: &nginx::Request, code: Code) -> Code {
        spans::end_call(subrequest, self.call.get());
        if code == Code::ERROR { Code::OK } else { code }
    }
}

/// Path and query of the copy; `None` for what is none.
fn target(request: &Request<'_>, template: &Template) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for part in template.parts() {
        match part {
            Part::Literal(literal) => text.extend_from_slice(literal),
            Part::Variable(name) => {
                let value = request.variable(&name.to_ascii_lowercase());
                text.extend_from_slice(value.unwrap_or_default());
            }
            Part::Capture(_) => {}
        }
    }
    if text.is_empty() {
        text.extend_from_slice(request.target());
    }
    let is_fine = text.first() == Some(&b'/')
        && text.iter().all(|byte| (0x21..0x7f).contains(byte) || *byte >= 0x80);
    is_fine.then_some(text)
}
