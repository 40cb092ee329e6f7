//! What waits for what, without an API server that answers.

use super::super::fake::Fake;
use super::*;
use oxigress_objects::Key;
use oxigress_objects::ingress::{Ingress, Tls};

/// Each Ingress refers to the Secrets of its spec.tls.
#[derive(Default)]
struct ByTls(BTreeMap<ObjectRef, BTreeSet<ObjectRef>>);

impl References for ByTls {
    fn depends_on(&self, id: &ObjectRef) -> bool {
        id.kind == Kind::Ingress
    }

    fn has(&self, id: &ObjectRef) -> bool {
        self.0.values().any(|all| all.contains(id))
    }

    fn apply(&mut self, (id, object): Seen) -> (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>) {
        let new: BTreeSet<_> = match object {
            Some(Object::Ingress(ingress)) => {
                ingress.tls.iter().map(|tls| secret(&tls.secret)).collect()
            }
            _ => BTreeSet::new(),
        };
        let old = self.0.insert(id, new.clone()).unwrap_or_default();
        (old.symmetric_difference(&new).cloned().collect(), new)
    }

    fn hide_classes(&mut self, _: bool) -> BTreeSet<ObjectRef> {
        BTreeSet::new()
    }
}

fn secret(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Secret, Key::new("a", name))
}

fn numbered(n: usize) -> ObjectRef {
    secret(&format!("s{n:04}"))
}

fn ingress(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Ingress, Key::new("a", name))
}

/// An Ingress that names these Secrets.
fn names(name: &str, numbers: std::ops::Range<usize>) -> Seen {
    let tls = numbers.map(|n| Tls { secret: numbered(n).key.name.into(), hosts: Vec::new() });
    let object = Ingress { tls: tls.collect(), ..Ingress::default() };
    (ingress(name), Some(Object::Ingress(object.into())))
}

struct Fixture {
    sparse: Sparse,
    /// The receiver of what is answered, which is nothing.
    _updates: mpsc::Receiver<WatchUpdate>,
}

impl Fixture {
    fn new() -> Self {
        let fake = Fake::default();
        fake.hold_gets_of("a");
        let (sender, updates) = mpsc::channel(1);
        let mut sparse = Sparse::new(fake.client(), Box::<ByTls>::default(), sender);
        sparse.start();
        sparse.end_first_lists();
        Fixture { sparse, _updates: updates }
    }

    /// Whether it goes on at once, while nothing is there.
    fn passes(&mut self, seen: Seen) -> bool {
        self.sparse.hold_back(seen, false, &|_| Some((0, false))).is_some()
    }

    fn answer(&mut self, id: &ObjectRef) -> Vec<Seen> {
        let number = self.sparse.questions[id].number;
        assert!(self.sparse.is_answer_to(id, number));
        let mut seen = Vec::new();
        self.sparse.release_ready(&mut seen);
        seen
    }
}

#[tokio::test]
async fn an_answer_is_one_step_of_those_that_wait_for_it() {
    let mut f = Fixture::new();
    assert!(!f.passes(names("i", 0..1_000)));
    for n in 0..999 {
        assert!(f.answer(&numbered(n)).is_empty());
        // Nothing of what is answered is looked at again.
        let waiting = &f.sparse.waiting[&ingress("i")];
        assert_eq!((waiting.waits_for.len(), f.sparse.ready.len()), (999 - n, 0));
    }
    let seen = f.answer(&numbered(999));
    assert_eq!(seen.len(), 1);
    assert!(f.sparse.waiting.is_empty() && f.sparse.questions.is_empty());
}

#[tokio::test]
async fn what_nobody_refers_to_any_more_is_not_asked_for() {
    let mut f = Fixture::new();
    assert!(!f.passes(names("j", 0..1)));
    for edit in 0..10 {
        assert!(!f.passes(names("i", edit * 100..edit * 100 + 100)));
        tokio::task::yield_now().await;
        let open = f.sparse.questions.len();
        assert_eq!(open, if edit == 0 { 100 } else { 101 }, "those of j and of this edit");
        assert!(f.sparse.places.count_waiting() <= open);
        assert!(f.sparse.doubtful.is_empty(), "nothing in the world is served from it");
        assert_eq!(f.sparse.take_unwanted().is_empty(), edit < 1);
    }
    // It names what j waits for too, and no longer: neither that nor its end waits for the answer.
    assert!(!f.passes(names("i", 0..1)));
    assert!(f.passes(names("i", 0..0)));
    assert!(!f.passes(names("i", 0..1)));
    assert!(f.passes((ingress("i"), None)));
    assert_eq!(f.sparse.questions[&numbered(0)].waiting.len(), 1);
    assert_eq!(f.answer(&numbered(0)), [names("j", 0..1)]);
}

#[tokio::test]
async fn the_first_batch_waits_for_what_first_lists_need() {
    let mut f = Fixture::new();
    assert!(!f.passes(names("later", 0..2)));
    assert!(!f.sparse.is_waiting_for_lists());
    let is_of_list = true;
    let seen = f.sparse.hold_back(names("listed", 1..3), is_of_list, &|_| Some((0, false)));
    assert!(seen.is_none() && f.sparse.is_waiting_for_lists());
    assert_eq!(f.sparse.of_lists, 2);
    f.answer(&numbered(2));
    assert!(f.sparse.is_waiting_for_lists(), "the later one asked for this first");
    f.answer(&numbered(1));
    assert!(!f.sparse.is_waiting_for_lists());
    assert_eq!(f.sparse.questions.len(), 1);
}

/// A list lacked a Secret of the world that a GET had brought, so another GET says whether it is gone.
#[tokio::test]
async fn whether_a_secret_is_gone_is_asked_also_while_nothing_refers_to_it() {
    let mut f = Fixture::new();
    let is_there = |id: &ObjectRef| Some((0, *id == numbered(0)));
    assert!(f.sparse.hold_back(names("i", 0..1), false, &is_there).is_some());
    f.sparse.fetched(&numbered(0), 0, 1);
    assert!(f.sparse.asks_again(&numbered(0), 0));
    // Somebody waits for another Secret, and the first one is not referred to for a while.
    assert!(f.sparse.hold_back(names("j", 5..6), false, &is_there).is_none());
    assert!(f.sparse.hold_back(names("i", 0..0), false, &is_there).is_some());
    assert!(f.sparse.take_unwanted().is_empty());
    assert!(f.sparse.hold_back(names("i", 0..1), false, &is_there).is_none(), "it waits again");
    assert_eq!(f.answer(&numbered(0)), [names("i", 0..1)], "the question is still open");
    // Nothing is asked on that is not in the world any more.
    f.sparse.fetched(&numbered(0), 0, 2);
    assert!(f.sparse.asks_again(&numbered(0), 0));
    assert!(f.sparse.hold_back(names("i", 0..0), false, &is_there).is_some());
    f.answer(&numbered(5));
    assert_eq!(f.sparse.take_unwanted(), [numbered(0)].into());
    assert!(f.sparse.questions.is_empty());
}
