//! The way back to Kubernetes: status of Ingresses and Events, by one replica of many.
//!
//! Shape:   the controller loop leaves [`Update`] at the [`Mailbox`] and never waits; one task takes them from there. [`lease`]
//!          says whether this replica writes, [`address`] what, [`write`] which Ingress next, [`event`] what is said.
//! Memory:  news of one object replace each other, so there are never more than there are objects.
//! Errors:  none ends it; each cause is logged once in ten seconds, and what failed is tried again.
//! Source:  ingress-nginx's controller.
//! Knows:     verdicts, whether Ingresses are accepted, what the API server says of them, and the API server.
//! Does not:  know why a verdict was given, or what is served.
#![forbid(unsafe_code)]

mod address;
mod event;
mod explain;
mod gateway;
mod lease;
mod options;
mod update;
mod write;
mod writer;

pub use address::TwoSources;
pub use lease::Leadership;
pub use options::Options;
pub use update::{Change, Update};

use event::EventQueue;
use gateway::GatewayQueue;
use kube::{Api, Client};
use lease::{Election, Times};
use oxigress_objects::Key;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use update::Mailbox;
use write::StatusQueue;
use writer::{Causes, Writer};

/// A shorter --status-update-interval is refused.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// The task that writes, as the controller sees it.
pub struct Status {
    mailbox: Arc<Mailbox>,
    leadership: Option<Leadership>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What the controller loop has of it.
#[derive(Clone)]
pub struct Reporter(Arc<Mailbox>);

impl Reporter {
    /// Leaves the update for the task; it never waits.
    pub fn report(&self, news: Update) {
        self.0.post(news);
    }
}

impl Status {
    /// Starts it for this pod. `maps` are the ConfigMaps that flags name.
    pub fn start(
        options: &Options,
        client: Client,
        pod: Key,
        maps: BTreeSet<Key>,
    ) -> Result<Self, address::TwoSources> {
        let (source, problems) = address::Source::of(options, &pod)?;
        problems.iter().for_each(|problem| tracing::error!("{problem}"));
        let (stop, stopped) = oneshot::channel();
        let (give_back, given_back) = oneshot::channel::<()>();
        let (mut leadership, mut election) = (None, None);
        if options.has_election {
            let (held, receiver) = lease::channel();
            let times = Times::of(options.election_ttl);
            let part = Election::new(&pod.namespace, &options.election_id, &pod.name, times);
            let leases = Api::namespaced(client.clone(), &pod.namespace);
            let end = async { drop(given_back.await) };
            election = Some(tokio::spawn(lease::keep(part, leases, held, end)));
            leadership = Some(receiver);
        }
        let mailbox = Arc::new(Mailbox::default());
        let now = Instant::now();
        let mut event_queue = EventQueue::new(options.writes_events, now);
        // Without an election everybody speaks, as in ingress-nginx; nobody writes status.
        event_queue.lead(leadership.is_none());
        let writer = Writer {
            mailbox: mailbox.clone(),
            client,
            source: options.writes_status.then_some(source),
            empties: options.empties_status,
            interval: options.update_interval.max(MIN_INTERVAL),
            pod,
            maps,
            known_maps: BTreeSet::new(),
            leadership: leadership.clone(),
            is_leader: false,
            status_queue: StatusQueue::default(),
            gateway_queue: GatewayQueue::new(options.gateway_controller_name.clone()),
            gateway_writes: JoinSet::new(),
            event_queue,
            writes: JoinSet::new(),
            pending_event: None,
            speak_at: None,
            reading: None,
            read_at: None,
            last_read: now,
            failed_reads: 0,
            trigger: None,
            is_ending: false,
            causes: Causes::default(),
        };
        let task = tokio::spawn(async move {
            writer.run(stopped).await;
            drop(give_back);
            if let Some(election) = election {
                let _ = election.await;
            }
        });
        Ok(Status { mailbox, leadership, stop, task })
    }

    /// A handle for the controller's loop.
    pub fn reporter(&self) -> Reporter {
        Reporter(self.mailbox.clone())
    }

    /// Whether this replica writes; none: there is no election.
    pub fn leadership(&self) -> Option<Leadership> {
        self.leadership.clone()
    }

    /// Empties the status if nobody stays who serves, and gives the Lease back.
    pub async fn end(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
