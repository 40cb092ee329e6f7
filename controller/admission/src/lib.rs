//! The admission webhook: judges an Ingress before the API server stores it.
//!
//! Shape:   HTTPS, HTTP/1.1, any path. A body becomes a [`ReviewRequest`] to the controller's loop, which alone has the world;
//!          its answer an AdmissionReview. [`certificate`] follows the files, [`review`] speaks JSON, [`checks`] counts.
//! Units:   [`MAX_BYTES`] a body and [`TIMEOUT`] a request, [`MAX_REQUESTS`] at once and few of one namespace ([`lines`]): more of
//!          them wait for a place, since an outcome takes milliseconds and a burst is no reason to refuse objects; 503 when their
//!          time is over.
//! Errors:  a [`Refusal`] is an HTTP status, after which the API server may store the object all the same. So whatever an object or
//!          its namespace can cause is an answer with 200 that denies it.
//! Source:  ingress-nginx's admission controller; limits are ours.
//! Knows:     AdmissionReviews, HTTPS, and how to ask translation.
//! Does not:  know when the controller's loop answers, or what is published.
#![forbid(unsafe_code)]

mod certificate;
mod checks;
mod head;
mod lines;
mod review;
#[cfg(test)]
mod tests;
mod upload;

pub use certificate::CertificateError;
pub use checks::Checks;

use certificate::Files;
use head::Head;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use lines::Lines;
use openssl::ssl::{Ssl, SslContext};
use oxigress_net::connections::{self, Bounds, ConnectionSlot, PROXIED};
use oxigress_net::places::Places;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use oxigress_translate::pace::Pace;
use oxigress_translate::{Candidate, ReviewOutcome, Reviews, Translator};
use review::Subject;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::timeout_at;
use tokio_openssl::SslStream;
use upload::Upload;

/// A longer review is refused.
pub const MAX_BYTES: usize = 8 << 20;
/// From the first byte of a request to its answer. The API server's 5 s (the chart's `timeoutSeconds`) begin before that.
const TIMEOUT: Duration = Duration::from_secs(4);
/// From a place for its body to the body's end: whoever sends one byte after the other keeps no place.
const UPLOAD: Duration = Duration::from_secs(2);
/// What is left for a denial after the line of a namespace: whoever asks waits no longer than [`TIMEOUT`].
const LEFT: Duration = Duration::from_secs(2);
/// Requests whose bodies are held at once.
const MAX_REQUESTS: usize = 16;
/// Requests of one client among them.
const PLACES_OF_CLIENT: usize = MAX_REQUESTS / 2;
/// Connections: the API servers' idle ones, and as many again that are making their handshakes. Several API servers may
/// come from one address. The API server opens another connection when it needs it.
const BOUNDS: Bounds = Bounds { all: 512, of_client: 384, idle: Duration::from_secs(60) };

/// What the operator decided about the webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--validating-webhook`; without it there is none.
    pub listen: Option<SocketAddr>,
    /// `--validating-webhook-certificate`
    pub certificate: Option<PathBuf>,
    /// `--validating-webhook-key`
    pub key: Option<PathBuf>,
}

/// Why there is no webhook.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag is missing.
    #[error("--validating-webhook needs {0}: name the file")]
    NoFile(&'static str),
    /// The files are no pair.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The port cannot be listened on.
    #[error("--validating-webhook {0}: free the address or choose another: {1}")]
    Listen(SocketAddr, std::io::Error),
}

/// Why a request gets no review.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It is not JSON, or no AdmissionReview.
    #[error("the body is not an AdmissionReview: {0}")]
    Unparsable(String),
    /// It is about something else.
    #[error(
        "{0} is not reviewed here: send AdmissionReviews of admission.k8s.io/v1 with Ingresses of networking.k8s.io/v1, or routes \
         and ListenerSets of gateway.networking.k8s.io/v1"
    )]
    OtherKind(String),
    /// The body is over [`MAX_BYTES`].
    #[error(
        "the AdmissionReview is over {MAX_BYTES} bytes, with the object as it is and as it is to be: make the object smaller; <, > and & \
         take six bytes each there"
    )]
    TooLarge,
    /// Too many objects of its namespace come at once.
    #[error(
        "namespace {namespace} has {} objects reviewed at once: send it again",
        lines::MAX_IN_LINE
    )]
    Crowded {
        /// Whose objects they are.
        namespace: String,
    },
    /// The body did not come in time.
    #[error(
        "the body did not arrive within {} s, {} s of them once it had a place",
        TIMEOUT.as_secs(),
        UPLOAD.as_secs()
    )]
    TooSlow,
    /// The connection broke while the body was read.
    #[error("the body ended early: {0}")]
    Broken(String),
    /// The request came through this gateway: an Ingress leads to the webhook.
    #[error("{}", PROXIED.trim_end())]
    Proxied,
    /// The controller cannot judge yet.
    #[error("the controller has not read all objects yet: try again")]
    Starting,
    /// No place, or no answer of the controller, in time.
    #[error("busy for {} s: try again", TIMEOUT.as_secs())]
    Busy,
}

impl Refusal {
    /// Whether the object or others of its namespace are the cause: it is denied.
    fn is_of_object(&self) -> bool {
        matches!(self, Refusal::TooLarge | Refusal::Crowded { .. } | Refusal::Unparsable(_))
    }

    fn status(&self) -> StatusCode {
        match self {
            Refusal::Unparsable(_) | Refusal::Broken(_) => StatusCode::BAD_REQUEST,
            Refusal::OtherKind(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::Proxied => StatusCode::FORBIDDEN,
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::Busy | Refusal::Starting => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Crowded { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// What the controller's loop is asked.
pub struct ReviewRequest {
    key: Key,
    uid: String,
    is_going: bool,
    subject: Subject,
    reply: oneshot::Sender<Option<Reviewed>>,
}

/// What it says.
struct Reviewed {
    outcome: ReviewOutcome,
    took: Duration,
}

impl ReviewRequest {
    /// Answers, but not before the source has told all there is (`has_all`): nothing can be judged then, and whether an
    /// object passes meanwhile is said by the webhook's failurePolicy. `world` is as before afterwards.
    pub fn answer(
        self,
        has_all: bool,
        (translator, pace): (&Translator, &Pace),
        world: &mut World,
        reviews: &mut Reviews,
    ) {
        let start = Instant::now();
        let outcome = has_all.then(|| {
            let is_stored = self.subject.is_stored(&self.key, world);
            // An object stays for as long as its finalizers do, and its other fields may change until then.
            let is_going = self.is_going && is_stored;
            let mut outcome = self.outcome(translator, world, is_going, (reviews, start));
            if outcome.denial.is_none() && !is_stored {
                let id = ObjectRef::new(self.subject.kind(), self.key.clone());
                let object = (&id, &self.subject.object());
                outcome.denial = translator.reserved(world, pace, object, reviews, start);
            }
            outcome
        });
        let reviewed = outcome.map(|outcome| Reviewed { outcome, took: start.elapsed() });
        // Whoever asked may have gone.
        let _ = self.reply.send(reviewed);
    }

    fn outcome(
        &self,
        translator: &Translator,
        world: &mut World,
        is_going: bool,
        (reviews, start): (&mut Reviews, Instant),
    ) -> ReviewOutcome {
        let ReviewRequest { key, uid, subject, .. } = self;
        match subject {
            Subject::Ingress(ingress) => {
                let candidate = Candidate { key, uid, is_going, ingress };
                translator.review(world, &candidate, reviews, start)
            }
            Subject::Route(..) | Subject::ListenerSet(_) if is_going => ReviewOutcome::default(),
            Subject::Route(kind, route) => {
                let id = ObjectRef::new(*kind, key.clone());
                translator.review_route(world, (&id, route), reviews, start)
            }
            Subject::ListenerSet(set) => translator.review_set(world, (key, set), reviews, start),
        }
    }
}

/// The webhook, ready to serve.
pub struct Webhook {
    listener: TcpListener,
    files: Files,
    contexts: watch::Sender<SslContext>,
    reviewer: Reviewer,
}

/// What a connection needs to answer reviews: the controller's queue and the bounds of all connections.
struct Reviewer {
    places: Places<IpAddr>,
    lines: Arc<Lines>,
    /// One object is held parsed at a time: it takes a multiple of its bytes.
    controller: Mutex<mpsc::Sender<ReviewRequest>>,
    checks: Arc<Checks>,
}

impl Webhook {
    /// Listens, if `--validating-webhook` says so. What is sent to `controller` is answered by [`ReviewRequest::answer`].
    pub async fn open(
        options: &Options,
        controller: mpsc::Sender<ReviewRequest>,
        checks: Arc<Checks>,
    ) -> Result<Option<Self>, StartError> {
        let Some(address) = options.listen else { return Ok(None) };
        let file = |file: &Option<PathBuf>, flag| file.clone().ok_or(StartError::NoFile(flag));
        let files = Files {
            certificate: file(&options.certificate, "--validating-webhook-certificate")?,
            key: file(&options.key, "--validating-webhook-key")?,
        };
        let context = files.load()?;
        let listener = listen(address).await.map_err(|why| StartError::Listen(address, why))?;
        Ok(Some(Webhook {
            listener,
            files,
            contexts: watch::Sender::new(context),
            reviewer: Reviewer::new(controller, checks),
        }))
    }

    /// Answers until the process ends.
    pub async fn serve(self) {
        let Webhook { listener, files, contexts, reviewer } = self;
        let newest = contexts.subscribe();
        tokio::spawn(certificate::follow(files, contexts));
        let reviewer = Arc::new(reviewer);
        let converse = move |stream, slot| {
            let (reviewer, context) = (reviewer.clone(), newest.borrow().clone());
            async move {
                // A client that hangs up is nobody's error here.
                let _ = converse(stream, slot, &context, &reviewer).await;
            }
        };
        connections::serve(listener, BOUNDS, converse).await;
    }
}

/// `:8443` is every address, also where there is no IPv6.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.ip().is_unspecified() && address.is_ipv6() => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

async fn converse(
    stream: TcpStream,
    slot: Arc<ConnectionSlot>,
    context: &SslContext,
    reviewer: &Reviewer,
) -> anyhow::Result<()> {
    let client = stream.peer_addr()?.ip();
    let mut stream = SslStream::new(Ssl::new(context)?, stream)?;
    tokio::time::timeout(TIMEOUT, Pin::new(&mut stream).accept()).await??;
    let service = service_fn(|request| async {
        let _work = slot.work();
        reviewer.answer(client, request).await
    });
    Ok(connections::converse(stream, service).await?)
}

impl Reviewer {
    fn new(controller: mpsc::Sender<ReviewRequest>, checks: Arc<Checks>) -> Self {
        let places = Places::new(MAX_REQUESTS, PLACES_OF_CLIENT);
        Reviewer { places, lines: Arc::default(), controller: Mutex::new(controller), checks }
    }

    async fn answer(
        &self,
        client: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let mut response = Response::new(Full::default());
        let reviewed = match connections::is_proxied(request.headers()) {
            true => Err(Refusal::Proxied),
            false => self.review(client, request.into_body()).await,
        };
        let (kind, body) = match reviewed {
            Ok(body) => ("application/json", body),
            Err(refusal) => {
                *response.status_mut() = refusal.status();
                let text = oxigress_core::text::line::one_line(&refusal.to_string());
                tracing::debug!("admission: {}: {text}", refusal.status());
                ("text/plain; charset=utf-8", format!("{text}\n").into_bytes())
            }
        };
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        *response.body_mut() = Full::new(Bytes::from(body));
        Ok(response)
    }

    /// The answer to one body.
    async fn review(&self, client: IpAddr, body: Incoming) -> Result<Vec<u8>, Refusal> {
        let start = Instant::now();
        let end = tokio::time::Instant::from_std(start + TIMEOUT);
        let mut upload = Upload::new(body);
        timeout_at(end, upload.begin()).await.map_err(|_| Refusal::TooSlow)??;
        let head = Head::read(upload.bytes());
        let reviewed = self.review_of((client, head.as_ref()), upload, start, end).await;
        match (reviewed, head) {
            (Err(refusal), Some(head)) if refusal.is_of_object() => {
                let denial = Some(refusal.to_string()).filter(|_| !head.is_deletion);
                let outcome = ReviewOutcome { denial, ..ReviewOutcome::default() };
                Ok(review::write(&head.uid, &outcome))
            }
            (reviewed, _) => reviewed,
        }
    }

    async fn review_of(
        &self,
        (client, head): (IpAddr, Option<&Head>),
        upload: Upload,
        start: Instant,
        end: tokio::time::Instant,
    ) -> Result<Vec<u8>, Refusal> {
        let crowded = |head: &Head| Refusal::Crowded { namespace: head.namespace.clone() };
        let line =
            head.map(|head| self.lines.join(client, &head.namespace).ok_or_else(|| crowded(head)));
        // The API server reads no answer before it has sent the body.
        let line = match line.transpose() {
            Ok(line) => line,
            Err(refusal) => {
                let _ = timeout_at(end, upload.skip()).await;
                return Err(refusal);
            }
        };
        let _first = match (&line, head) {
            (Some(line), Some(head)) => {
                Some(timeout_at(end - LEFT, line.place()).await.map_err(|_| crowded(head))?)
            }
            _ => None,
        };
        let place = timeout_at(end, self.places.take(client)).await;
        let _place = place.map_err(|_| Refusal::Busy)?.ok_or(Refusal::Busy)?;
        let until = end.min(tokio::time::Instant::now() + UPLOAD);
        let body = timeout_at(until, upload.read(MAX_BYTES, head.is_some())).await;
        let body = body.map_err(|_| Refusal::TooSlow)??;
        let asked = timeout_at(end, self.ask(&body)).await;
        let (review, key, answer) = asked.map_err(|_| Refusal::Busy)??;
        if let (Some(key), Some(answer)) = (&key, &answer) {
            self.checks.count(key, &answer.outcome, answer.took, body.len(), start.elapsed());
        }
        Ok(review)
    }

    /// The answer, and what the controller said if it was asked.
    async fn ask(&self, body: &[u8]) -> Result<(Vec<u8>, Option<Key>, Option<Reviewed>), Refusal> {
        let controller = self.controller.lock().await;
        let review::Review { uid, object } = review::read(body)?;
        let (object, candidate) = match object {
            Ok(Some(object)) => (object.id(), object),
            // It goes: there is nothing to reviewer.
            Ok(None) => return Ok((review::write(&uid, &ReviewOutcome::default()), None, None)),
            Err(denial) => {
                let outcome = ReviewOutcome { denial: Some(denial), ..ReviewOutcome::default() };
                return Ok((review::write(&uid, &outcome), None, None));
            }
        };
        let (reply, answer) = oneshot::channel();
        let review::Object { key: id, uid: object_uid, is_going, subject } = candidate;
        let question = ReviewRequest { key: id, uid: object_uid, is_going, subject, reply };
        controller.send(question).await.map_err(|_| Refusal::Busy)?;
        let answer = answer.await.map_err(|_| Refusal::Busy)?.ok_or(Refusal::Starting)?;
        if let Some(denial) = &answer.outcome.denial {
            let denial = oxigress_core::text::line::one_line(denial);
            tracing::debug!("{object}: not admitted: {denial}");
        }
        let key = (object.kind == Kind::Ingress).then_some(object.key);
        Ok((review::write(&uid, &answer.outcome), key, Some(answer)))
    }
}
