//! Elections on a paused clock, against an API server that is slow, cut off, or loses answers.

use super::*;
use std::sync::{Arc, Mutex};

const TTL: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

/// One replica's way to it.
#[derive(Clone, Default)]
struct Way {
    server: Arc<Mutex<Server>>,
    fault: Arc<Mutex<Fault>>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// No request arrives, and none is answered.
    Cut,
    /// Writes arrive, but nobody hears of it.
    AnswersLost,
    /// So long until a request arrives, and until its answer does.
    Slow(Duration),
}

impl Way {
    fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    async fn travel(&self, is_answer: bool) {
        let fault = *self.fault.lock().unwrap();
        match fault {
            Fault::None => tokio::time::sleep(Duration::from_millis(5)).await,
            Fault::Cut => std::future::pending().await,
            Fault::AnswersLost if is_answer => std::future::pending().await,
            Fault::AnswersLost => {}
            Fault::Slow(pause) => tokio::time::sleep(pause).await,
        }
    }
}

impl Server {
    fn write(&mut self, claim: Claim) -> Result<Lease, LeaseError> {
        let (mut lease, is_right) = match claim {
            Claim::Create(lease) => (lease, self.lease.is_none()),
            Claim::Replace(lease) => {
                let version = lease.metadata.resource_version.clone();
                let is_right = self.lease.as_ref().map(|l| l.metadata.resource_version.clone());
                (lease, is_right == Some(version))
            }
        };
        if !is_right {
            return Err(LeaseError::Conflict);
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Ok(lease)
    }
}

impl Leases for Way {
    async fn get(&self, _: &str) -> Result<Option<Lease>, LeaseError> {
        self.travel(false).await;
        let lease = self.server.lock().unwrap().lease.clone();
        self.travel(true).await;
        Ok(lease)
    }

    async fn write(&self, claim: Claim) -> Result<Lease, LeaseError> {
        // A request that was given up may still arrive.
        let (server, way) = (self.server.clone(), self.clone());
        let arrival = tokio::spawn(async move {
            way.travel(false).await;
            server.lock().unwrap().write(claim)
        });
        let answer = arrival.await.unwrap();
        self.travel(true).await;
        answer
    }
}

struct Replica {
    way: Way,
    leadership: Leadership,
    task: tokio::task::JoinHandle<()>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Replica {
    fn start(server: &Arc<Mutex<Server>>, name: &str) -> Self {
        let way = Way { server: server.clone(), ..Way::default() };
        let (held, leadership) = channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let election = Election::new("ingress", "leader", name, Times::of(TTL));
        let stopped = async { drop(stopped.await) };
        let task = tokio::spawn(keep(election, way.clone(), held, stopped));
        Replica { way, leadership, task, stop: Some(stop) }
    }

    async fn leads(&mut self) -> Duration {
        let start = Instant::now();
        while !self.leadership.is_held() {
            self.leadership.changed().await;
        }
        start.elapsed()
    }
}

fn record(server: &Arc<Mutex<Server>>) -> LeaseSpec {
    server.lock().unwrap().lease.clone().unwrap().spec.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_dies_is_followed_after_the_whole_time_and_not_much_later() {
    let server = Arc::default();
    let mut first = Replica::start(&server, "a");
    first.leads().await;
    let mut second = Replica::start(&server, "b");
    tokio::time::sleep(TTL * 5).await;
    assert!(first.leadership.is_held() && !second.leadership.is_held());
    assert_eq!(record(&server).holder_identity.as_deref(), Some("a"));
    let acquired = record(&server).acquire_time;
    assert_eq!(record(&server).lease_transitions, Some(0));

    first.task.abort();
    let renewed = record(&server).renew_time;
    let took = second.leads().await;
    assert!(took > TTL - TTL / 4 && took < TTL.mul_f64(1.4), "{took:?}");
    assert_ne!(record(&server).renew_time, renewed);
    assert_ne!(record(&server).acquire_time, acquired);
    assert_eq!(record(&server).lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_stops_before_another_begins_and_comes_back_as_a_follower() {
    let server = Arc::default();
    let mut first = Replica::start(&server, "a");
    first.leads().await;
    let mut second = Replica::start(&server, "b");
    tokio::time::sleep(TTL).await;
    first.way.set(Fault::Cut);
    let cut_at = Instant::now();
    while first.leadership.is_held() {
        first.leadership.changed().await;
    }
    assert!(cut_at.elapsed() <= TTL / 2, "{:?}", cut_at.elapsed());
    assert!(!second.leadership.is_held());
    second.leads().await;
    assert!(cut_at.elapsed() >= TTL.mul_f64(0.74), "{:?}", cut_at.elapsed());

    first.way.set(Fault::None);
    tokio::time::sleep(TTL * 3).await;
    assert!(!first.leadership.is_held() && second.leadership.is_held());
    // And leads again when its turn has come.
    second.task.abort();
    first.leads().await;
    assert_eq!(record(&server).lease_transitions, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_the_next_turn() {
    let server = Arc::default();
    let mut first = Replica::start(&server, "a");
    first.leads().await;
    let mut second = Replica::start(&server, "b");
    tokio::time::sleep(TTL).await;
    drop(first.stop.take());
    let took = second.leads().await;
    assert!(took <= TTL.mul_f64(0.31), "{took:?}");
    first.task.await.unwrap();
    assert!(!first.leadership.is_held());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_hold_it_gives_nothing_back() {
    let server = Arc::default();
    let mut first = Replica::start(&server, "a");
    first.leads().await;
    let mut second = Replica::start(&server, "b");
    tokio::time::sleep(TTL).await;
    drop(second.stop.take());
    second.task.await.unwrap();
    tokio::time::sleep(TTL).await;
    assert_eq!(record(&server).holder_identity.as_deref(), Some("a"));
    assert!(first.leadership.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_is_made_again() {
    let server: Arc<Mutex<Server>> = Arc::default();
    let mut first = Replica::start(&server, "a");
    first.leads().await;
    server.lock().unwrap().lease = None;
    tokio::time::sleep(TTL).await;
    assert!(first.leadership.is_held());
    assert_eq!(record(&server).holder_identity.as_deref(), Some("a"));
}

fn lease_of(identity: &str, renewed: i64, version: &str) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some(version.into());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(identity.into()),
        lease_duration_seconds: Some(30),
        renew_time: Timestamp::from_second(renewed).ok().map(MicroTime),
        ..LeaseSpec::default()
    });
    lease
}

#[tokio::test(start_paused = true)]
async fn the_clocks_of_others_do_not_count() {
    let mut election = Election::new("ingress", "leader", "b", Times::of(TTL));
    // A holder whose clock is a day behind, and one whose clock is a year ahead.
    for renewed in [1_000_000, 2_000_000_000] {
        let start = Instant::now();
        election.saw(Some(lease_of("a", renewed, "1")), start);
        let wall = Timestamp::from_second(1_086_400).unwrap();
        // Touched by somebody else: another version, but nothing was renewed.
        election.saw(Some(lease_of("a", renewed, "2")), start + TTL / 2);
        assert_eq!(election.claim(start + TTL - Duration::from_millis(1), wall), None);
        let claim = election.claim(start + TTL, wall);
        let Some(Claim::Replace(lease)) = claim else { panic!("{claim:?}") };
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("2"));
    }
}

#[test]
fn a_restarted_holder_goes_on_at_once_and_acquires_nothing_anew() {
    let mut election = Election::new("ingress", "leader", "a", Times::of(TTL));
    let now = Instant::now();
    election.saw(Some(lease_of("a", 5, "1")), now);
    // It has not renewed itself: it may be about to run out.
    assert_eq!(election.until(), None);
    let Some(Claim::Replace(lease)) = election.claim(now, Timestamp::UNIX_EPOCH) else { panic!() };
    assert_eq!(lease.spec.unwrap().acquire_time, None);
}

/// 15 random histories of three replicas: never two holders, and one again when all is well.
#[tokio::test(start_paused = true)]
async fn never_two_whatever_the_network_does() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut changes_of_holder = 0;
    for _ in 0..15 {
        let server: Arc<Mutex<Server>> = Arc::default();
        let replicas: Vec<_> = ["a", "b", "c"].map(|n| Replica::start(&server, n)).into();
        for _ in 0..40 {
            let fault = match random(6) {
                0 => Fault::Cut,
                1 => Fault::AnswersLost,
                2 => Fault::Slow(Duration::from_millis(random(9_000))),
                3 => Fault::Slow(Duration::from_millis(random(40_000))),
                _ => Fault::None,
            };
            replicas[random(3) as usize].way.set(fault);
            for _ in 0..random(400) {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let holders = replicas.iter().filter(|r| r.leadership.is_held()).count();
                assert!(holders <= 1, "{holders} hold it at once");
            }
        }
        replicas.iter().for_each(|replica| replica.way.set(Fault::None));
        // What is under way may take another 80 s, and then the time of who had it.
        tokio::time::sleep(TTL * 6).await;
        assert_eq!(replicas.iter().filter(|r| r.leadership.is_held()).count(), 1);
        changes_of_holder += record(&server).lease_transitions.unwrap();
        replicas.iter().for_each(|replica| replica.task.abort());
    }
    assert!(changes_of_holder > 15, "{changes_of_holder}: too quiet to prove anything");
}
