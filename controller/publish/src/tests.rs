//! The publisher by itself: what it sends, and what an answer means.

use super::*;
use oxigress_core::model::{HostPattern, Server};

const EPOCH: &str = "00000000000000aa";

fn answer(status: u16, body: serde_json::Value) -> Result<Response, ClientError> {
    let status = StatusCode::from_u16(status).unwrap();
    Ok(Response { status, retry_after: None, body: body.to_string().into() })
}

fn applied(generation: u64) -> Result<Response, ClientError> {
    answer(200, serde_json::json!({"epoch": EPOCH, "generation": generation}))
}

fn view(snapshot: &Snapshot) -> View<'_> {
    View { snapshot, owner: &|_| None }
}

struct Fixture {
    publisher: Publisher,
    snapshot: Snapshot,
}

impl Fixture {
    /// With one generation live.
    fn new() -> Self {
        let mut f = Fixture { publisher: Publisher::new(0), snapshot: Snapshot::default() };
        assert_eq!(f.send().method, Method::PUT);
        assert_eq!(f.answer(applied(1)), Next::Now);
        assert!(!f.publisher.is_behind());
        f
    }

    fn host(&mut self, host: &str) {
        let host = HostPattern::parse(host).unwrap();
        self.snapshot.servers.insert(host.clone(), Server::default());
        let mut patch = Patch::default();
        patch.upsert.servers.insert(host, Server::default());
        self.publisher.change(patch);
    }

    fn send(&mut self) -> Outgoing {
        self.publisher.outgoing(&view(&self.snapshot)).unwrap()
    }

    fn answer(&mut self, answer: Result<Response, ClientError>) -> Next {
        self.publisher.answered(answer, Duration::ZERO, &view(&self.snapshot))
    }
}

#[test]
fn a_delta_builds_on_the_last_answer() {
    let mut f = Fixture::new();
    f.host("a");
    let sent = f.send();
    assert_eq!(sent.method, Method::PATCH);
    assert_eq!(sent.if_match.as_deref(), Some("\"00000000000000aa.1\""));
    f.host("b");
    f.answer(applied(2));
    let sent = f.send();
    assert_eq!(sent.if_match.as_deref(), Some("\"00000000000000aa.2\""));
    let text = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(text.contains("\"b\"") && !text.contains("\"a\""), "{text}");
}

#[test]
fn an_nginx_that_says_when_is_asked_then() {
    let mut f = Fixture::new();
    f.host("a");
    for asked in [0, 1] {
        let mut next = Next::Now;
        for _ in 0..120 {
            f.send();
            let mut busy = answer(503, serde_json::json!({"error": "busy"}));
            if let Ok(busy) = &mut busy {
                busy.retry_after = Some(Duration::from_secs(asked));
            }
            next = f.answer(busy);
        }
        // The backoff alone would be at its longest.
        assert_eq!(next, Next::After(Duration::from_secs(asked).max(QUICK)));
    }
    f.send();
    assert_eq!(f.answer(applied(2)), Next::Now);
}

#[test]
fn what_nginx_has_decides_while_something_cannot_be_read() {
    assert_eq!(first_write(false, None), FirstWrite::Whole);
    assert_eq!(first_write(false, Some(7)), FirstWrite::Whole);
    assert_eq!(first_write(true, None), FirstWrite::AfterStatus);
    assert_eq!(first_write(true, Some(0)), FirstWrite::Whole);
    assert_eq!(first_write(true, Some(7)), FirstWrite::Additions);
}

#[test]
fn a_restart_with_a_broken_file_only_adds_until_all_is_read() {
    let mut f = Fixture { publisher: Publisher::new(0), snapshot: Snapshot::default() };
    f.publisher.set_incomplete(true);
    f.host("a");
    assert_eq!(f.send().method, Method::GET);
    let status = serde_json::json!({"epoch": EPOCH, "generation": 7, "counts": {},
        "capacity_bytes": 1, "free_bytes": 1, "workers": []});
    assert_eq!(f.answer(answer(200, status)), Next::Now);
    let sent = f.send();
    assert_eq!(sent.method, Method::PATCH);
    assert_eq!(sent.if_match.as_deref(), Some("\"00000000000000aa.7\""));
    let text = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(text.contains("\"a\"") && !text.contains("remove"), "{text}");
    f.answer(applied(8));
    assert!(!f.publisher.is_behind());
    let mut patch = Patch::default();
    patch.remove.servers.insert(HostPattern::parse("a").unwrap());
    f.publisher.change(patch);
    assert!(!f.publisher.is_behind());
    f.publisher.set_incomplete(false);
    assert_eq!(f.send().method, Method::PUT);
    f.answer(applied(9));
    assert!(!f.publisher.is_behind());
}

#[test]
fn a_conflict_sends_the_whole() {
    let mut f = Fixture::new();
    f.host("a");
    f.send();
    assert_eq!(f.answer(answer(409, serde_json::json!({"error": "older"}))), Next::Now);
    assert!(f.publisher.is_behind());
    assert_eq!(f.send().method, Method::PUT);
}

#[test]
fn a_restarted_nginx_gets_the_whole() {
    let mut f = Fixture::new();
    f.publisher.request_status();
    f.answer(answer(
        200,
        serde_json::json!({"epoch": "bb", "generation": 0, "counts": {},
        "capacity_bytes": 1, "free_bytes": 1, "workers": []}),
    ));
    assert!(f.publisher.is_behind());
    assert_eq!(f.send().method, Method::PUT);
}

#[test]
fn an_unanswered_delta_is_sent_again_together_with_what_came_later() {
    let mut f = Fixture::new();
    f.host("a");
    f.send();
    f.host("b");
    assert_eq!(f.answer(Err(ClientError::Timeout)), Next::After(backoff::QUICK));
    let text = String::from_utf8_lossy(&f.send().body).into_owned();
    assert!(text.contains("\"a\"") && text.contains("\"b\""), "{text}");
}

#[test]
fn a_refused_record_is_withheld_and_the_rest_is_served() {
    let mut f = Fixture::new();
    f.host("a");
    f.host("b");
    f.send();
    let problem = serde_json::json!({"error": "bad", "pointer": "/upsert/servers/a/rules"});
    assert_eq!(f.answer(answer(400, problem)), Next::Now);
    // Without its server another one might answer for the host: a closed one takes its place.
    let text = String::from_utf8_lossy(&f.send().body).into_owned();
    assert!(text.contains("\"b\"") && text.contains("withheld"), "{text}");
    assert_eq!(f.publisher.take_withheld().map(|all| all.len()), Some(1));
    f.answer(answer(409, serde_json::json!({})));
    let text = String::from_utf8_lossy(&f.send().body).into_owned();
    assert!(text.contains("\"b\"") && text.contains("withheld"), "{text}");
    f.answer(applied(3));
    f.host("a");
    assert!(!String::from_utf8_lossy(&f.send().body).contains("withheld"));
}

#[test]
fn a_refused_status_is_no_endless_loop() {
    let mut f = Fixture::new();
    f.publisher.request_status();
    assert_eq!(f.answer(answer(400, serde_json::json!({}))), Next::OnChange);
}

#[test]
fn records_without_room_are_sent_when_the_zone_has_grown() {
    let mut f = Fixture::new();
    f.host("a");
    f.send();
    let problem = serde_json::json!({"error": "full", "needed_bytes": 2, "free_bytes": 1,
        "capacity_bytes": 100});
    assert_eq!(f.answer(answer(507, problem)), Next::Now);
    assert_eq!(f.publisher.wanted_zone(), Some(202));
    assert!(String::from_utf8_lossy(&f.send().body).contains("withheld"));
    f.answer(applied(2));
    let status = |f: &mut Fixture, capacity: u64, free: u64| {
        f.publisher.request_status();
        let status = serde_json::json!({"epoch": EPOCH, "generation": 2, "counts": {},
            "capacity_bytes": capacity, "free_bytes": free, "workers": []});
        f.answer(answer(200, status));
    };
    status(&mut f, 100, 50);
    assert!(!f.publisher.is_behind());
    status(&mut f, 10_000, 9_000);
    assert!(f.publisher.is_behind());
    let text = String::from_utf8_lossy(&f.send().body).into_owned();
    assert!(text.contains("\"a\"") && !text.contains("withheld"), "{text}");
    assert_eq!(f.publisher.wanted_zone(), None);
}
