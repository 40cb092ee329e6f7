//! DNS names to addresses, beside all else: a name server that hangs holds up nothing but its own names.
//!
//! Shape:   one task a name asks, reports, and waits until the answer's TTL has passed ([`lookup`]). Reports end in
//!          the [`oxigress_objects::World`] as objects do, so translate stays pure.
//! Units:   TTLs from 1 to 30 s; after a failure 1 s, doubled up to 5 s: a name server that is back is noticed.
//! Errors:  a failure is reported and the world keeps the addresses it had; [`kept`] keeps them for the next start.
//! Rejected: nginx's resolver, which knows no search domains; a lookup in each worker, as
//!          ingress-nginx does it, which asks as often as there are workers and forgets at a reload.

mod configuration;
mod kept;
mod lookup;

use kept::Kept;
use lookup::{Client, Found};
use oxigress_objects::external_name::DnsAnswer;
use oxigress_objects::external_name::DnsName;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

/// Names that are asked for at the same time: each has a socket.
const MOST_AT_ONCE: usize = 256;
/// After the first failure, and the longest after many.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// A name and what DNS answered about it.
pub type Report = (DnsName, DnsAnswer);

/// Looks names up as long as they are wanted.
pub struct Resolver {
    shared: Arc<Shared>,
    tasks: BTreeMap<DnsName, AbortHandle>,
}

struct Shared {
    client: Client,
    at_once: Semaphore,
    reports: mpsc::Sender<Report>,
    kept: Arc<Kept>,
}

impl Resolver {
    /// Asks the name servers of `resolv_conf`, reports to `reports` and keeps good answers in the file `kept`.
    pub fn new(
        resolv_conf: &Path,
        kept: PathBuf,
        reports: mpsc::Sender<Report>,
    ) -> anyhow::Result<Self> {
        let client = Client::new(resolv_conf)?;
        let kept = Arc::new(Kept::open(kept));
        tokio::spawn(kept.clone().write_changes());
        let at_once = Semaphore::new(MOST_AT_ONCE);
        let shared = Arc::new(Shared { client, at_once, reports, kept });
        Ok(Resolver { shared, tasks: BTreeMap::new() })
    }

    /// Looks these names up from now on, and no others; answers what is known of new ones from before.
    pub fn want(&mut self, names: &BTreeSet<DnsName>) -> Vec<Report> {
        self.tasks.retain(|name, task| {
            let is_wanted = names.contains(name);
            if !is_wanted {
                task.abort();
                self.shared.kept.forget(name);
            }
            is_wanted
        });
        let mut known = Vec::new();
        for name in names {
            if self.tasks.contains_key(name) {
                continue;
            }
            if let Some(addresses) = self.shared.kept.get(name) {
                known.push((name.clone(), DnsAnswer { addresses, ..DnsAnswer::default() }));
            }
            let task = tokio::spawn(self.shared.clone().follow(name.clone()));
            self.tasks.insert(name.clone(), task.abort_handle());
        }
        known
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.tasks.values().for_each(AbortHandle::abort);
    }
}

impl Shared {
    async fn follow(self: Arc<Self>, name: DnsName) {
        let mut last: Option<Found> = None;
        let (first, longest) = PAUSES;
        let mut pause = first;
        loop {
            let looked = {
                let Ok(_turn) = self.at_once.acquire().await else { return };
                self.client.look_up(&name, last.as_ref()).await
            };
            let (answer, wait) = match looked {
                Ok(found) => {
                    tracing::debug!("{name}: {found:?}");
                    pause = first;
                    self.kept.set(&name, &found.addresses);
                    let answer = DnsAnswer {
                        addresses: found.addresses.clone(),
                        left_out: found.left_out,
                        failure: None,
                    };
                    let wait = found.ttl;
                    last = Some(found);
                    (answer, wait)
                }
                Err(failure) => {
                    tracing::debug!("{name}: {failure}; next try in {pause:?}");
                    let wait = pause;
                    pause = (pause * 2).min(longest);
                    (DnsAnswer { failure: Some(failure.to_string()), ..DnsAnswer::default() }, wait)
                }
            };
            if self.reports.send((name.clone(), answer)).await.is_err() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }
}
