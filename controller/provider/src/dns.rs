//! DNS names to addresses, beside all else: a name server that hangs holds up nothing but its own names, and others of
//! the namespaces that name many of these.
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
use oxigress_net::places::{Place, Places};
use oxigress_objects::Name;
use oxigress_objects::service::external_name::{DnsAnswer, DnsName};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Names that are asked for at the same time, of all namespaces and of one: each has a socket.
const MOST_AT_ONCE: (usize, usize) = (256, 32);
/// Names of one namespace that are looked up.
const MOST_OF_NAMESPACE: usize = 1_000;
/// After the first failure, and the longest after many.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// A name and what DNS answered about it.
pub type Report = (DnsName, DnsAnswer);

/// Looks names up as long as they are wanted.
pub struct Resolver {
    shared: Arc<Shared>,
    tasks: BTreeMap<DnsName, Task>,
}

/// What looks a name up.
struct Task {
    handle: AbortHandle,
    /// The namespace in whose turns the name is.
    namespace: watch::Sender<Name>,
}

impl Task {
    fn put_in_turn_of(&self, namespace: &Name) {
        self.namespace.send_if_modified(|old| {
            let is_other = old != namespace;
            if is_other {
                old.clone_from(namespace);
            }
            is_other
        });
    }
}

struct Shared {
    client: Client,
    places: Places<Name>,
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
        let (all, of_namespace) = MOST_AT_ONCE;
        let places = Places::new(all, of_namespace);
        let shared = Arc::new(Shared { client, places, reports, kept });
        Ok(Resolver { shared, tasks: BTreeMap::new() })
    }

    /// Looks these names up from now on, and no others, each in the turn of a namespace; answers what is known of new ones from
    /// before, and which ones are too many.
    pub fn want(&mut self, names: &BTreeMap<DnsName, Name>) -> Vec<Report> {
        let (followed, too_many) = within_limit(names, |name| self.tasks.contains_key(name));
        self.tasks.retain(|name, task| {
            let is_wanted = followed.contains_key(name);
            if !is_wanted {
                task.handle.abort();
                self.shared.kept.forget(name);
            }
            is_wanted
        });
        let mut known = Vec::new();
        for (name, of) in &followed {
            if let Some(task) = self.tasks.get(name) {
                task.put_in_turn_of(of);
                continue;
            }
            if let Some(addresses) = self.shared.kept.get(name) {
                known.push((name.clone(), DnsAnswer { addresses, ..DnsAnswer::default() }));
            }
            let (namespace, of) = watch::channel(of.clone());
            let task = tokio::spawn(self.shared.clone().follow(name.clone(), of));
            self.tasks.insert(name.clone(), Task { handle: task.abort_handle(), namespace });
        }
        known.extend(too_many.into_iter().map(|(name, namespace)| {
            let failure = format!(
                "not looked up: namespace {namespace} names more than {MOST_OF_NAMESPACE}, use fewer"
            );
            (name, DnsAnswer { failure: Some(failure), ..DnsAnswer::default() })
        }));
        known
    }
}

/// The names that are looked up, and those that are too many for their namespaces: of each those that are looked up already
/// come first.
fn within_limit(
    names: &BTreeMap<DnsName, Name>,
    is_followed: impl Fn(&DnsName) -> bool,
) -> (BTreeMap<DnsName, Name>, BTreeMap<DnsName, Name>) {
    let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
    let (old, new): (Vec<_>, Vec<_>) = names.iter().partition(|(name, _)| is_followed(name));
    let counted = old.into_iter().chain(new).map(|(name, namespace)| {
        let count = counts.entry(namespace).or_default();
        *count += 1;
        (*count <= MOST_OF_NAMESPACE, (name.clone(), namespace.clone()))
    });
    let (followed, too_many): (Vec<_>, Vec<_>) = counted.partition(|(is_within, _)| *is_within);
    let names = |all: Vec<(bool, (DnsName, Name))>| all.into_iter().map(|(_, name)| name).collect();
    (names(followed), names(too_many))
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.tasks.values().for_each(|task| task.handle.abort());
    }
}

impl Shared {
    /// Waits for a place in the line of the namespace in whose turns a name is: in another one's as soon as it is in that one's.
    async fn place(&self, namespace: &mut watch::Receiver<Name>) -> Option<Place<Name>> {
        loop {
            let of = namespace.borrow_and_update().clone();
            tokio::select! {
                biased;
                place = self.places.take(of) => return place,
                // The resolver is gone, and with it who asks.
                changed = namespace.changed() => changed.ok()?,
            }
        }
    }

    async fn follow(self: Arc<Self>, name: DnsName, mut namespace: watch::Receiver<Name>) {
        let mut last: Option<Found> = None;
        let (first, longest) = PAUSES;
        let mut pause = first;
        loop {
            let looked = {
                let Some(_place) = self.place(&mut namespace).await else { return };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use tokio::net::UdpSocket;

    fn names(of: &str, suffix: &str, count: usize) -> BTreeMap<DnsName, Name> {
        let name = |n| DnsName::parse(&format!("n{n:04}.{suffix}")).unwrap();
        (0..count).map(|n| (name(n), of.into())).collect()
    }

    /// The name that a query asks for, and where its question ends.
    fn question(query: &[u8]) -> (String, usize) {
        let (mut name, mut at) = (String::new(), 12);
        while query[at] != 0 {
            let end = at + 1 + usize::from(query[at]);
            name += &(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase() + ".");
            at = end;
        }
        (name, at + 5)
    }

    /// Answers each name with an address, but those of evil.test, which it counts.
    async fn serve(socket: UdpSocket, asked: Arc<Mutex<BTreeMap<String, usize>>>) {
        let mut query = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query).await {
            let (name, end) = question(&query[..length]);
            if name.ends_with("evil.test.") {
                *asked.lock().unwrap().entry(name).or_default() += 1;
                continue;
            }
            let mut answer = query[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend(&query[12..end]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 1]);
            socket.send_to(&answer, client).await.unwrap();
        }
    }

    /// A resolver whose name server says nothing of evil.test, what is asked about that, and what is reported.
    async fn resolver(
        folder: &Path,
    ) -> (Resolver, Arc<Mutex<BTreeMap<String, usize>>>, mpsc::Receiver<Report>) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let conf = folder.join("resolv.conf");
        let text = format!("nameserver [127.0.0.1]:{port}\noptions timeout:30 attempts:1\n");
        fs::write(&conf, text).unwrap();
        let asked = Arc::default();
        tokio::spawn(serve(socket, Arc::clone(&asked)));
        let (sender, reports) = mpsc::channel(16);
        (Resolver::new(&conf, folder.join("names.json"), sender).unwrap(), asked, reports)
    }

    #[tokio::test]
    async fn a_name_server_that_hangs_holds_up_its_namespace_s_names_only() {
        let folder = tempfile::tempdir().unwrap();
        let (mut resolver, asked, mut reports) = resolver(folder.path()).await;
        let mut wanted = names("a", "evil.test", 300);
        wanted.extend(names("b", "z.test", 1));
        assert!(resolver.want(&wanted).is_empty());
        let (name, answer) = reports.recv().await.unwrap();
        assert_eq!((name.as_str(), answer.addresses.len()), ("n0000.z.test", 1));
        let asked = asked.lock().unwrap().len();
        assert!(asked <= 32, "{asked}");
    }

    #[tokio::test]
    async fn a_name_that_waits_is_asked_for_in_the_turn_of_another_namespace_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut resolver, _, mut reports) = resolver(folder.path()).await;
        let mut wanted = names("a", "evil.test", 300);
        let last = DnsName::parse("z.test").unwrap();
        wanted.insert(last.clone(), "a".into());
        resolver.want(&wanted);
        while resolver.shared.places.count_waiting() < 301 - 32 {
            tokio::task::yield_now().await;
        }
        wanted.insert(last.clone(), "b".into());
        resolver.want(&wanted);
        let (name, answer) = reports.recv().await.unwrap();
        assert_eq!((name, answer.addresses.len()), (last, 1));
        assert_eq!(resolver.shared.places.count_waiting(), 300 - 32, "it is in one line");
    }

    #[tokio::test]
    async fn of_a_namespace_a_thousand_names_are_looked_up() {
        let (sender, _reports) = mpsc::channel(1);
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("names.json");
        let mut resolver = Resolver::new(Path::new("/nowhere"), kept, sender).unwrap();
        let mut wanted = names("a", "evil.test", 1_001);
        wanted.extend(names("b", "z.test", 1));
        let too_many = resolver.want(&wanted);
        let [(name, answer)] = &too_many[..] else { panic!("{too_many:?}") };
        assert_eq!(name.as_str(), "n1000.evil.test");
        assert!(answer.failure.as_ref().unwrap().contains("namespace a"), "{answer:?}");
        assert_eq!(resolver.tasks.len(), 1_001);
        // One that is looked up already stays so, wherever new ones stand.
        wanted.extend(names("a", "a.test", 1));
        let too_many = resolver.want(&wanted);
        let too_many = too_many.iter().map(|(name, _)| name.as_str());
        assert_eq!(too_many.collect::<Vec<_>>(), ["n0000.a.test", "n1000.evil.test"]);
        wanted.retain(|name, _| name.as_str() != "n0001.evil.test");
        let too_many = resolver.want(&wanted);
        assert_eq!(too_many.len(), 1, "there is room for one more");
    }
}
