use super::*;
use std::cell::Cell;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// The words of some sets, and how many requests were forgotten.
struct Block(Vec<AtomicU64>, AtomicU64);

fn block(sets: usize) -> Block {
    Block((0..sets * SET_WORDS).map(|_| AtomicU64::new(0)).collect(), AtomicU64::new(0))
}

impl Block {
    fn connections(&self) -> Connections<'_> {
        Connections::new(&self.0, &self.1).unwrap()
    }
}

#[test]
fn a_request_above_the_limit_waits_for_one_to_end() {
    let block = block(4);
    let connections = block.connections();
    let begin = |key| connections.begin(key, 2, |_| ()).map(|begun| begun.slot);
    let first = begin(9).unwrap();
    begin(9).unwrap();
    assert_eq!(begin(9), Err(Overload));
    begin(10).unwrap();
    connections.end(first);
    begin(9).unwrap();
    assert_eq!([connections.under_way(9), connections.under_way(10)], [2, 1]);
    assert_eq!(connections.begin(11, 0, |_| ()), Err(Overload), "a limit of none");
}

#[test]
fn a_place_is_free_again_when_the_last_request_has_ended() {
    let block = block(1);
    let connections = block.connections();
    let begin = |key| connections.begin(key, 9, |_| ()).unwrap();
    let all: Vec<_> = (1..=8).map(|key| begin(key).slot).collect();
    connections.end(all[3]);
    assert_eq!(begin(9).forgotten, 0);
    assert_eq!(block.1.load(SeqCst), 0);
    // Its place is another one's now.
    connections.end(all[3]);
    assert_eq!(connections.under_way(9), 1);
}

#[test]
fn a_full_set_forgets_the_key_with_the_fewest_requests() {
    let block = block(1);
    let connections = block.connections();
    let begin = |key| connections.begin(key, 3, |_| ());
    // One key is at its limit, one has two requests, six have one.
    let mut slot: Vec<_> = [1, 1, 1, 2, 2].map(|key| begin(key).unwrap().slot).into();
    slot.extend((3..=8).map(|key| begin(key).unwrap().slot));
    for newcomer in 100..200 {
        let begun = begin(newcomer).unwrap();
        assert_eq!(begun.forgotten, 1, "a new client comes in, and costs one request's count");
        assert_eq!(connections.under_way(newcomer), 1);
        slot.push(begun.slot);
    }
    assert_eq!(block.1.load(SeqCst), 100);
    assert_eq!([connections.under_way(1), connections.under_way(2)], [3, 2]);
    assert_eq!(begin(1), Err(Overload), "a flood does not free a client at its limit");
    // What ends twice, since its place was given away, is counted down once.
    slot.into_iter().for_each(|slot| connections.end(slot));
    assert!(block.0.iter().all(|word| word.load(Relaxed) == 0), "a count is left over");
}

#[test]
fn what_is_noted_is_what_is_held() {
    let block = block(4);
    let connections = block.connections();
    let noted = Cell::new(None);
    let slot = connections.begin(0, 1, |slot| noted.set(Some(slot))).unwrap().slot;
    assert_eq!(noted.get(), Some(slot));
    let again = Slot::from_bits(slot.to_bits()).unwrap();
    connections.end(again);
    assert_eq!(connections.under_way(0), 0);
    assert_eq!(Slot::from_bits(0), None);
}

/// Places come and go all the time, so that two threads often give a key two of them.
#[test]
fn threads_never_hold_more_than_the_limit() {
    const LIMIT: u32 = 3;
    let block = block(1);
    let connections = block.connections();
    let under_way: [AtomicI64; 4] = Default::default();
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (connections, under_way, admitted) = (&connections, &under_way, &admitted);
            scope.spawn(move || {
                for turn in 0..30_000_u64 {
                    let key = (turn / 3 + thread) % 4;
                    let begin = || connections.begin(key + 1, LIMIT, |_| ());
                    let slot: Vec<_> = (0..2).filter_map(|_| begin().ok()).collect();
                    // Admitted after they came in, and until before they go: never more than there are.
                    let count = &under_way[key as usize];
                    let now = count.fetch_add(slot.len() as i64, SeqCst) + slot.len() as i64;
                    assert!(now <= i64::from(LIMIT), "{now} at once");
                    admitted.fetch_add(slot.len() as u64, Relaxed);
                    count.fetch_sub(slot.len() as i64, SeqCst);
                    slot.into_iter().for_each(|begun| connections.end(begun.slot));
                }
            });
        }
    });
    assert!(block.0.iter().all(|word| word.load(Relaxed) == 0), "a count is left over");
    assert!(admitted.into_inner() > 60_000);
}

/// What the threads above do now and then, in one order: another worker gives the same key the place before.
#[test]
fn two_places_of_a_key_are_one_count() {
    let block = block(1);
    let connections = block.connections();
    let other = connections.begin(1, 1, |_| ()).unwrap().slot;
    let is_first = Cell::new(true);
    let meanwhile = |_| {
        if is_first.replace(false) {
            connections.end(other);
            connections.begin(2, 1, |_| ()).unwrap();
        }
    };
    assert_eq!(connections.begin(2, 1, meanwhile), Err(Overload));
    assert_eq!(connections.under_way(2), 1);
}
