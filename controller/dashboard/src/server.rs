//! The HTTP of the dashboard: the page, its JSON, and the events that keep it live.

use crate::access::{Access, COOKIE_NAME};
use crate::page;
use crate::query::{DashboardQuery, Kind};
use crate::rows::MOST;
use crate::traffic;
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, LOCATION, SET_COOKIE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use oxigress_core::explain::ExplainRequest;
use oxigress_core::text::percent;
use oxigress_net::connections::{self, Bounds, ConnectionSlot, PROXIED};
use oxigress_net::socket;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// A few people, each with a few connections of a browser.
const BOUNDS: Bounds = Bounds { all: 64, of_client: 32, idle: Duration::from_secs(60) };
/// Between two events. nginx's metrics are collected for each.
const EVERY: Duration = Duration::from_secs(3);
/// How long nginx may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Nothing is loaded from elsewhere, nothing inline is run, and nobody puts the page into another.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The dashboard of one controller.
pub struct Dashboard {
    access: Access,
    configuration: PathBuf,
    status: PathBuf,
    questions: mpsc::Sender<DashboardQuery>,
}

impl Dashboard {
    /// With nginx's two sockets. The controller's loop answers what is sent to the receiver.
    pub fn new(access: Access, sockets: [PathBuf; 2]) -> (Self, mpsc::Receiver<DashboardQuery>) {
        let (questions, receiver) = mpsc::channel(8);
        let [configuration, status] = sockets;
        (Dashboard { access, configuration, status, questions }, receiver)
    }

    /// Answers until the process ends.
    pub async fn serve(self, listener: TcpListener) {
        let dashboard = Arc::new(self);
        connections::serve(listener, BOUNDS, move |stream, slot| {
            converse(stream, slot, dashboard.clone())
        })
        .await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (head, _) = request.into_parts();
        if connections::is_proxied(&head.headers) {
            return text(StatusCode::FORBIDDEN, PROXIED);
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "the dashboard only reads\n");
        }
        let query = Query::of(head.uri.query().unwrap_or_default());
        let token = query.get("token").map(str::to_owned);
        if !self.access.permits(&head.headers, token.as_deref()) {
            let why = "401: send the token of --dashboard-token-file as `Authorization: Bearer TOKEN`, or open /?token=TOKEN. \
                       Without a token only names of this machine are answered.\n";
            return text(StatusCode::UNAUTHORIZED, why);
        }
        if let ("/", Some(token)) = (head.uri.path(), token) {
            return remember(&token);
        }
        if let Some(file) = page::file(head.uri.path()) {
            return typed(file.kind, Bytes::from_static(file.content.as_bytes()));
        }
        let kind = match head.uri.path() {
            "/events" => return events(self),
            "/api/overview" => return json_of(self.overview().await),
            "/api/backend" => return self.statistics(query.get("id").unwrap_or_default()).await,
            "/api/explain" => return self.explain(head.uri.query().unwrap_or_default()).await,
            "/api/routes" => Kind::Routes,
            "/api/backends" => Kind::Backends,
            "/api/certificates" => Kind::Certificates,
            "/api/findings" => Kind::Findings,
            _ => return text(StatusCode::NOT_FOUND, "not found\n"),
        };
        let number =
            |name, default| query.get(name).map_or(Ok(default), |text| text.parse::<usize>());
        match (number("offset", 0), number("limit", 100)) {
            (Ok(offset), Ok(limit)) => {
                let wanted = query.get("q").unwrap_or_default().to_owned();
                json_of(self.ask(Some(kind), offset, limit.min(MOST), wanted).await)
            }
            _ => text(StatusCode::BAD_REQUEST, "offset and limit are numbers\n"),
        }
    }

    async fn ask(&self, kind: Option<Kind>, offset: usize, limit: usize, text: String) -> Value {
        let (reply, answer) = oneshot::channel();
        let query = DashboardQuery { kind, offset, limit, text, reply };
        match self.questions.send(query).await {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => Value::Null,
        }
    }

    async fn overview(&self) -> Value {
        let controller = self.ask(None, 0, 0, String::new()).await;
        let routes = controller["routes"].as_u64().unwrap_or_default();
        let nginx = traffic::sample(&self.configuration, &self.status, routes);
        let nginx = tokio::time::timeout(TIMEOUT, nginx).await.unwrap_or_default();
        json!({"controller": controller, "nginx": nginx})
    }

    /// What nginx has counted of a backend's endpoints.
    async fn statistics(&self, id: &str) -> Response<Body> {
        let target = format!("/configuration/stats?backend={}", encoded(id));
        self.of_nginx(&target).await
    }

    /// Where a request goes, with those that lose. nginx understands the query, which is checked first.
    async fn explain(&self, query: &str) -> Response<Body> {
        let asked = query.split('&').filter(|pair| !pair.starts_with("token="));
        let asked = asked.collect::<Vec<_>>().join("&");
        match ExplainRequest::from_query(asked.as_bytes()) {
            Ok(asked) => {
                self.of_nginx(&format!("/configuration/explain?{}", asked.to_query())).await
            }
            Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        }
    }

    async fn of_nginx(&self, target: &str) -> Response<Body> {
        match tokio::time::timeout(TIMEOUT, socket::get(&self.configuration, target)).await {
            Ok(Ok(body)) => typed("application/json", body),
            Ok(Err(error)) => match error.downcast_ref::<socket::Refusal>() {
                Some(refusal) => text(refusal.0, format!("{}\n", refusal.1)),
                None => text(StatusCode::BAD_GATEWAY, "nginx does not answer\n"),
            },
            Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "nginx does not answer in time\n"),
        }
    }
}

async fn converse(stream: TcpStream, slot: Arc<ConnectionSlot>, dashboard: Arc<Dashboard>) {
    let service = service_fn(|request: Request<Incoming>| {
        let (dashboard, slot) = (dashboard.clone(), slot.clone());
        async move {
            let is_of_events = request.uri().path() == "/events";
            let work = slot.work();
            let answer = dashboard.answer(request).await;
            // A page that is open is worked for until it is closed.
            let answer = match is_of_events {
                true => answer.map(|body| keep(body, work)),
                false => answer,
            };
            Ok::<_, Infallible>(answer)
        }
    });
    // A client that hangs up is nobody's error here.
    let _ = connections::converse(stream, service).await;
}

/// The body, with what is let go when it ends.
fn keep(body: Body, work: impl Send + 'static) -> Body {
    body.map_frame(move |frame| {
        let _held = &work;
        frame
    })
    .boxed_unsync()
}

/// The overview, again and again, as server-sent events.
fn events(dashboard: Arc<Dashboard>) -> Response<Body> {
    let all = stream::unfold((dashboard, Duration::ZERO), |(dashboard, pause)| async move {
        tokio::time::sleep(pause).await;
        let event = format!("data: {}\n\n", dashboard.overview().await);
        let frame: Result<_, Infallible> = Ok(Frame::data(Bytes::from(event)));
        Some((frame, (dashboard, EVERY)))
    });
    let body = StreamBody::new(Box::pin(all)).boxed_unsync();
    with_type("text/event-stream", body)
}

/// Keeps the token in a cookie that scripts cannot read, and leads to an address without it.
fn remember(token: &str) -> Response<Body> {
    let mut response = text(StatusCode::SEE_OTHER, "");
    let cookie = format!("{COOKIE_NAME}={token}; HttpOnly; SameSite=Strict; Path=/");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    response
}

fn json_of(value: Value) -> Response<Body> {
    typed("application/json", Bytes::from(value.to_string()))
}

fn text(status: StatusCode, content: impl Into<String>) -> Response<Body> {
    let mut response = typed("text/plain; charset=utf-8", Bytes::from(content.into()));
    *response.status_mut() = status;
    response
}

fn typed(kind: &'static str, content: Bytes) -> Response<Body> {
    with_type(kind, Full::new(content).boxed_unsync())
}

fn with_type(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let fixed = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (http::header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The parameters of a query, decoded.
struct Query(BTreeMap<String, String>);

impl Query {
    fn of(query: &str) -> Self {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Query(pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&percent::unescape_form(text.as_bytes())).into_owned()
}

fn encoded(text: &str) -> String {
    percent::escaped(text.as_bytes(), b"~/").map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_and_encoded() {
        assert_eq!(decoded("a%20b+c%2Fd%zz%4"), "a b c/d%zz%4");
        assert_eq!(encoded("default/shop/80?&x"), "default/shop/80%3F%26x");
        let query = Query::of("q=a%26b&offset=3&x");
        assert_eq!(
            (query.get("q"), query.get("offset"), query.get("x")),
            (Some("a&b"), Some("3"), None)
        );
    }
}
