//! Which replica writes: the one that holds the Lease, by the rules of client-go.
//!
//! Shape:   [`Election`] decides, from what was seen and the monotonic clock; [`keep`] asks the API server.
//! Safety:  a holder counts from the moment before it asked for its last renewal, and stops after the deadline, half of the
//!          Lease's time. Others count the whole of it from the moment they saw that renewal, which is later. So there is
//!          half a time between the end of one and the begin of another, whatever their wall clocks say: times that stand
//!          in a Lease are compared with each other only for being different.
//! Source:  client-go's tools/leaderelection; ingress-nginx's controller.
//! Rejected: kubert (for kube 1), kube-leader-election (for kube 4) and kube-lease-manager, which compares a Lease's times with
//!          its own wall clock, and patches, where ingress-nginx's Role grants get, create and update.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Error};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Shorter than this no request is waited for: an API server under load takes longer than a short Lease's quarter.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The durations of an election.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A Lease that nobody was seen to renew for so long is free.
    ttl: Duration,
    /// So long after its last renewal a holder stops.
    deadline: Duration,
    /// The time between two attempts to get or keep the Lease.
    retry: Duration,
}

impl Times {
    /// The times of a Lease of this length, in the proportions of ingress-nginx.
    pub fn of(ttl: Duration) -> Self {
        // A Lease counts in seconds.
        let ttl = Duration::from_secs(ttl.as_secs_f64().ceil().max(1.0) as u64);
        Times { ttl, deadline: ttl / 2, retry: ttl / 4 }
    }
}

/// A Lease as it was seen.
struct Seen {
    lease: Lease,
    /// When it was first seen to say this.
    at: Instant,
}

/// Our part in the election.
pub struct Election {
    name: String,
    namespace: String,
    identity: String,
    times: Times,
    seen: Option<Seen>,
    /// When the last renewal that succeeded was asked for; none: somebody else holds it, or nobody.
    renewed_at: Option<Instant>,
}

/// What is to be written.
#[derive(Debug, PartialEq)]
pub enum Claim {
    /// The Lease does not exist and is to be made.
    Create(Lease),
    /// It must still be the one that was seen.
    Replace(Lease),
}

impl Election {
    /// Makes an election that has seen no Lease.
    pub fn new(namespace: &str, name: &str, identity: &str, times: Times) -> Self {
        Election {
            name: name.into(),
            namespace: namespace.into(),
            identity: identity.into(),
            times,
            seen: None,
            renewed_at: None,
        }
    }

    /// Until when we hold it.
    pub fn until(&self) -> Option<Instant> {
        self.renewed_at.map(|at| at + self.times.deadline)
    }

    fn holds(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// Takes over what the API server says; none: there is no Lease.
    pub fn saw(&mut self, lease: Option<Lease>, now: Instant) {
        let Some(lease) = lease else {
            (self.seen, self.renewed_at) = (None, None);
            return;
        };
        if holder(&lease) != self.identity {
            self.renewed_at = None;
        }
        let at = match &self.seen {
            Some(seen) if seen.lease.spec == lease.spec => seen.at,
            _ => now,
        };
        self.seen = Some(Seen { lease, at });
    }

    /// What to write to become or stay the holder; none: somebody else is. `wall` is for people to read.
    pub fn claim(&self, now: Instant, wall: Timestamp) -> Option<Claim> {
        let Some(Seen { lease, .. }) = &self.seen else {
            let metadata = ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            };
            let spec = Some(self.spec(&LeaseSpec::default(), wall));
            return Some(Claim::Create(Lease { metadata, spec }));
        };
        if self.free_at().is_some_and(|free_at| now < free_at) {
            return None;
        }
        let spec = self.spec(&lease.spec.clone().unwrap_or_default(), wall);
        Some(Claim::Replace(Lease { spec: Some(spec), metadata: lease.metadata.clone() }))
    }

    /// When another one's Lease runs out.
    fn free_at(&self) -> Option<Instant> {
        let Seen { lease, at } = self.seen.as_ref()?;
        let is_free = holder(lease).is_empty() || holder(lease) == self.identity;
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let told = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let ttl = told.map_or(self.times.ttl, Duration::from_secs);
        (!is_free).then(|| *at + ttl)
    }

    fn spec(&self, old: &LeaseSpec, wall: Timestamp) -> LeaseSpec {
        let is_renewal = old.holder_identity.as_ref() == Some(&self.identity);
        let transitions = old.lease_transitions.unwrap_or_default();
        let is_new = self.seen.is_none();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.times.ttl.as_secs()).ok(),
            acquire_time: match is_renewal {
                true => old.acquire_time.clone(),
                false => Some(MicroTime(wall)),
            },
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(match is_renewal || is_new {
                true => transitions,
                false => transitions.saturating_add(1),
            }),
            ..old.clone()
        }
    }

    /// What was written stands; it was asked for at `asked_at`.
    pub fn won(&mut self, lease: Lease, asked_at: Instant, now: Instant) {
        self.saw(Some(lease), now);
        self.renewed_at = Some(asked_at);
    }

    /// What to write so that another one need not wait; none: it is not ours.
    pub fn release(&mut self, now: Instant, wall: Timestamp) -> Option<Lease> {
        let is_held = self.holds(now);
        self.renewed_at = None;
        let Seen { lease, .. } = self.seen.as_ref().filter(|_| is_held)?;
        let old = lease.spec.clone().unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            ..old
        };
        Some(Lease { spec: Some(spec), metadata: lease.metadata.clone() })
    }

    /// When to look again. `jitter` is from 0 to 1: replicas that were started together part.
    pub fn next_turn(&self, now: Instant, jitter: f64) -> Instant {
        let retry = self.times.retry;
        if self.holds(now) {
            return now + retry;
        }
        let turn = now + retry.mul_f64(1.0 + 0.2 * jitter);
        // Not up to a quarter later than it becomes free.
        let free_at = self.free_at().filter(|free_at| *free_at > now);
        free_at.map_or(turn, |free_at| free_at.min(turn))
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Why nothing was written or read.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another replica has written the Lease meanwhile.
    #[error("another replica updated the Lease first")]
    Conflict,
    /// The API server refused or did not answer.
    #[error("{0}")]
    Failed(String),
}

impl From<Error> for LeaseError {
    fn from(error: Error) -> Self {
        match &error {
            Error::Api(status) if status.is_conflict() || status.is_already_exists() => {
                LeaseError::Conflict
            }
            error => LeaseError::Failed(crate::explain::explain(error)),
        }
    }
}

/// The API server, as far as the election needs it.
pub trait Leases {
    /// None: there is no Lease.
    fn get(&self, name: &str) -> impl Future<Output = Result<Option<Lease>, LeaseError>> + Send;
    /// Answers what stands there now.
    fn write(&self, claim: Claim) -> impl Future<Output = Result<Lease, LeaseError>> + Send;
}

impl Leases for Api<Lease> {
    async fn get(&self, name: &str) -> Result<Option<Lease>, LeaseError> {
        Ok(self.get_opt(name).await?)
    }

    async fn write(&self, claim: Claim) -> Result<Lease, LeaseError> {
        let parameters = PostParams::default();
        Ok(match claim {
            Claim::Create(lease) => self.create(&parameters, &lease).await?,
            Claim::Replace(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                match self.replace(&name, &parameters, &lease).await {
                    // Deleted meanwhile: the next look says so.
                    Err(Error::Api(status)) if status.is_not_found() => {
                        return Err(LeaseError::Conflict);
                    }
                    written => written?,
                }
            }
        })
    }
}

/// Whether we are the one that writes.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// We are, for sure, now.
    pub fn is_held(&self) -> bool {
        self.until().is_some()
    }

    /// Until when, if we are.
    pub fn until(&self) -> Option<Instant> {
        let until = *self.0.borrow();
        until.filter(|until| Instant::now() < *until)
    }

    /// Waits until it is gained, renewed or lost.
    pub async fn changed(&mut self) {
        let until = self.until();
        let lost = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.0.changed() => if changed.is_err() { std::future::pending().await },
            () = lost => {}
        }
    }
}

/// The two ends of what [`keep`] tells.
pub fn channel() -> (watch::Sender<Option<Instant>>, Leadership) {
    let (sender, receiver) = watch::channel(None);
    (sender, Leadership(receiver))
}

/// Takes part until `stop`, then gives the Lease back if it is ours.
pub async fn keep(
    mut election: Election,
    leases: impl Leases,
    held: watch::Sender<Option<Instant>>,
    stop: impl Future<Output = ()>,
) {
    tokio::pin!(stop);
    let mut log = super::Causes::default();
    loop {
        let was_held = election.holds(Instant::now());
        let patience = election.times.retry.max(TIMEOUT);
        let turned = {
            let turn = timeout(patience, take_turn(&mut election, &leases));
            tokio::pin!(turn);
            tokio::select! {
                turned = &mut turn => turned,
                () = &mut stop => {
                    // What is under way changes what is to be given back.
                    let _ = timeout(TIMEOUT, turn).await;
                    break;
                }
            }
        };
        match turned {
            Ok(Ok(()) | Err(LeaseError::Conflict)) => {}
            Ok(Err(LeaseError::Failed(why))) => {
                log.warn("lease", format!("Lease {}: {why}", election.name))
            }
            Err(_) => {
                let why = "the API server does not answer";
                log.warn("lease", format!("Lease {}: {why}", election.name));
            }
        }
        let now = Instant::now();
        held.send_if_modified(|until| {
            std::mem::replace(until, election.until()) != election.until()
        });
        if was_held != election.holds(now) {
            let what = if was_held { "lost leadership" } else { "became leader" };
            tracing::info!("{} {what} (Lease {})", election.identity, election.name);
        }
        tokio::select! {
            () = sleep_until(election.next_turn(now, oxigress_net::pause::random())) => {}
            () = &mut stop => break,
        }
    }
    held.send_replace(None);
    if let Some(lease) = election.release(Instant::now(), Timestamp::now()) {
        // Without it the others wait for the end of its time.
        let _ = timeout(TIMEOUT, leases.write(Claim::Replace(lease))).await;
    }
}

async fn take_turn(election: &mut Election, leases: &impl Leases) -> Result<(), LeaseError> {
    let asked_at = Instant::now();
    if election.holds(asked_at)
        && let Some(claim) = election.claim(asked_at, Timestamp::now())
    {
        match leases.write(claim).await {
            Ok(lease) => {
                election.won(lease, asked_at, Instant::now());
                return Ok(());
            }
            // Whose it is, is to be seen.
            Err(LeaseError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    let lease = leases.get(&election.name).await?;
    let now = Instant::now();
    election.saw(lease, now);
    if let Some(claim) = election.claim(now, Timestamp::now()) {
        let lease = leases.write(claim).await?;
        election.won(lease, now, Instant::now());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
