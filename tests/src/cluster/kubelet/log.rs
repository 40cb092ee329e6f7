//! What Pods say, and the port at which the API server asks the kubelet for it: `/containerLogs/NAMESPACE/POD/CONTAINER`.

use crate::certificate::Certificate;
use crate::protocol::{Listener, Stream, Tls};
use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{BufRead, BufReader, PipeReader};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines with the second in which each was said.
type Lines = Vec<(u64, String)>;

/// What each `NAMESPACE/POD` has said.
#[derive(Clone, Default)]
pub struct Logs(Arc<Mutex<BTreeMap<String, Lines>>>);

impl Logs {
    /// Keeps what a Pod says until it ends.
    pub fn follow(&self, pod: String, output: PipeReader) {
        let logs = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let mut all = logs.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.entry(pod.clone()).or_default().push((now.as_secs(), line));
            }
        });
    }

    /// What a Pod has said since this second.
    pub fn since(&self, pod: &str, second: u64) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = all.get(pod).into_iter().flatten().filter(|(at, _)| *at >= second);
        lines.map(|(_, line)| format!("{line}\n")).collect()
    }

    /// Answers them.
    pub fn serve(&self) -> Result<Listener> {
        let certificate = Certificate::new("kubelet", &["localhost"])?;
        let logs = self.clone();
        Listener::start(Tls::On(&certificate), move |stream| serve(stream, logs.clone()))
    }
}

async fn serve(stream: Box<dyn Stream>, logs: Logs) -> Result<()> {
    let answer = |request: Request<Incoming>| {
        let text = logs.answer(request.uri());
        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text)))) }
    };
    let http = hyper::server::conn::http1::Builder::new();
    Ok(http.serve_connection(TokioIo::new(stream), service_fn(answer)).await?)
}

impl Logs {
    fn answer(&self, uri: &Uri) -> String {
        let pod = uri.path().strip_prefix("/containerLogs/").unwrap_or_default();
        let pod = pod.rsplit_once('/').map_or(pod, |(pod, _container)| pod);
        let parameters = uri.query().unwrap_or_default().split('&');
        let mut since = parameters.filter_map(|one| one.strip_prefix("sinceTime="));
        let since = since.next().map(|time| time.replace("%3A", ":"));
        let since = since.and_then(|time| serde_json::from_value::<Time>(time.into()).ok());
        self.since(pod, since.map_or(0, |Time(time)| time.as_second().unsigned_abs()))
    }
}
