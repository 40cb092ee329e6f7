//! Whether the API server is heard: for the log, the metrics, and whoever waits to ask it again.
//!
//! Shape:   kube's watcher tells of events and errors, but not that a watch is open again; so its client notes every
//!          answer here. Each watch is a number, as in [`super::scope::Subject::all`].

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::{Body, Client};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is known of all watches.
pub struct WatchHealth {
    watches: Mutex<Vec<Watch>>,
    /// An answer came while one was missing.
    answered: Notify,
    /// The last that was lost is open again.
    whole: Notify,
}

#[derive(Clone, Copy)]
struct Watch {
    heard: Instant,
    opened: Option<Instant>,
    is_lost: bool,
    /// The server refuses it: nothing is expected.
    is_refused: bool,
    /// When the server answered first after it was lost.
    answered: Option<Instant>,
}

impl WatchHealth {
    /// Of so many watches, none of which is open.
    pub fn new(watches: usize) -> Arc<Self> {
        let watch = Watch {
            heard: Instant::now(),
            opened: None,
            is_lost: false,
            is_refused: false,
            answered: None,
        };
        Arc::new(WatchHealth {
            watches: Mutex::new(vec![watch; watches]),
            answered: Notify::new(),
            whole: Notify::new(),
        })
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Watch>> {
        // Each change is one assignment: what a panic left is usable.
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client whose answers are noted.
    pub fn listen(self: &Arc<Self>, client: &Client, watch: usize) -> Client {
        let (watch_health, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (watch_health, inner) = (watch_health.clone(), inner.clone());
            async move {
                let query = request.uri().query().unwrap_or_default();
                let is_watch = query.split('&').any(|part| part.starts_with("watch="));
                let response = inner.send(request).await?;
                if response.status().is_success() {
                    watch_health.answer(watch, is_watch);
                }
                let body = move |body: Body| {
                    body.map_frame(move |frame| {
                        watch_health.hear(watch);
                        frame
                    })
                };
                Ok::<Response<_>, kube::Error>(response.map(body))
            }
        });
        Client::new(service, client.default_namespace())
    }

    fn hear(&self, watch: usize) {
        if let Some(watch) = self.watches().get_mut(watch) {
            watch.heard = Instant::now();
        }
    }

    fn answer(&self, watch: usize, is_watch: bool) {
        let now = Instant::now();
        let mut watches = self.watches();
        let was_lost = watches.iter().any(|watch| watch.is_lost);
        for watch in watches.iter_mut().filter(|watch| watch.is_lost) {
            watch.answered.get_or_insert(now);
        }
        if let Some(watch) = watches.get_mut(watch) {
            (watch.heard, watch.is_refused) = (now, false);
            if is_watch {
                (watch.opened, watch.is_lost) = (Some(now), false);
            }
        }
        if was_lost {
            self.answered.notify_waiters();
            if !watches.iter().any(|watch| watch.is_lost) {
                self.whole.notify_one();
            }
        }
    }

    /// No answer, or the connection broke. Answers how long it was open before.
    pub fn lose(&self, watch: usize) -> Duration {
        let mut watches = self.watches();
        let Some(watch) = watches.get_mut(watch) else { return Duration::ZERO };
        (watch.is_lost, watch.answered) = (true, None);
        watch.opened.take().map_or(Duration::ZERO, |opened| opened.elapsed())
    }

    /// The server answers, but will not tell. Answers how long it was open before.
    pub fn refuse(&self, watch: usize) -> Duration {
        let mut watches = self.watches();
        let Some(watch) = watches.get_mut(watch) else { return Duration::ZERO };
        (watch.is_refused, watch.is_lost) = (true, false);
        watch.opened.take().map_or(Duration::ZERO, |opened| opened.elapsed())
    }

    /// Waits for any answer of the server.
    pub async fn any_answer(&self) {
        self.answered.notified().await;
    }

    /// Waits until nothing is lost any more; answers when the server answered first.
    pub async fn whole_again(&self) -> Option<Instant> {
        self.whole.notified().await;
        self.watches().iter_mut().filter_map(|watch| watch.answered.take()).min()
    }

    /// Whether one is lost and not open again.
    pub fn has_lost(&self) -> bool {
        self.watches().iter().any(|watch| watch.is_lost)
    }

    /// Whether every watch is open, or refused.
    pub fn is_whole(&self) -> bool {
        self.watches().iter().all(|watch| watch.is_refused || watch.opened.is_some())
    }

    /// How long the watch that is silent longest has been; an open one says something at least once a minute.
    pub fn silence(&self) -> Duration {
        let watches = self.watches();
        let expected = watches.iter().filter(|watch| !watch.is_refused);
        expected.map(|watch| watch.heard.elapsed()).max().unwrap_or_default()
    }
}
