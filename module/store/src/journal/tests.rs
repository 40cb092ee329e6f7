//! Journals in a temporary folder, of stores on the heap.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::{Heap, rounds};
use crate::{CellNames, no_cells};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FORMAT: Format = Format { version: 3, cells };

fn cells(kind: u8, _: &[u8]) -> CellNames<'_> {
    CellNames { names: if kind == 1 { vec![b"all"] } else { Vec::new() }, words: 1 }
}
const ZONE: usize = 4 << 20;

type State = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

fn state(heap: &Heap) -> State {
    let reader = heap.attach(900, 1);
    let mut all = State::new();
    reader.read().for_each(|record| {
        all.insert((record.kind(), record.key().to_vec()), record.value().to_vec());
    });
    all
}

fn writer(heap: &Heap, path: &Path) -> Writer {
    Writer::new(heap.store, path, FORMAT, 1).unwrap()
}

/// What a store that starts with this journal has, and why it read no further.
fn loaded(path: &Path) -> (State, Option<Stop>) {
    let heap = Heap::new(ZONE);
    let stop = load(&heap, path).unwrap();
    (state(&heap), stop)
}

fn load(heap: &Heap, path: &Path) -> Result<Option<Stop>, ReplayError> {
    let Some(mut tail) = Tail::open(path, FORMAT)? else { return Ok(None) };
    let mut transaction = heap.store.try_write(&heap.lock).unwrap();
    let stop = tail.replay(&mut transaction)?;
    transaction.commit()?;
    Ok(Some(stop))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn journal(&self) -> PathBuf {
        self.0.path().join("journal")
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8, usize),
    Remove(u8, u8),
    Step,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..3u8, 0..40u8, 0..300usize).prop_map(|(kind, key, size)| Op::Put(kind, key, size)),
        3 => (0..3u8, 0..40u8).prop_map(|(kind, key)| Op::Remove(kind, key)),
        2 => Just(Op::Step),
    ]
}

fn apply(heap: &Heap, op: &Op, n: usize) {
    heap.write(|t| match *op {
        Op::Put(kind, key, size) => {
            t.upsert(kind, &[key; 5], &vec![n as u8; size], no_cells).map(drop)
        }
        Op::Remove(kind, key) => t.remove(kind, &[key; 5]).map(drop),
        Op::Step => Ok(()),
    })
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds(100, 8)))]

    #[test]
    fn what_was_written_is_loaded(ops in prop::collection::vec(op(), 1..120)) {
        let (heap, folder) = (Heap::new(ZONE), Folder::new());
        let mut writer = writer(&heap, &folder.journal());
        for (n, op) in ops.iter().enumerate() {
            apply(&heap, op, n);
            if matches!(op, Op::Step) {
                writer.step().unwrap();
            }
        }
        writer.step().unwrap();
        prop_assert_eq!(heap.store.progress().generation, heap.store.live().generation);
        prop_assert_eq!(loaded(&folder.journal()), (state(&heap), Some(Stop::End)));
    }

    #[test]
    fn a_journal_that_is_cut_is_used_up_to_its_last_whole_frame(
        ops in prop::collection::vec(op(), 1..60),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 10),
    ) {
        let (heap, folder) = (Heap::new(ZONE), Folder::new());
        let path = folder.journal();
        let mut writer = writer(&heap, &path);
        // The state of each length of the file.
        let mut states = BTreeMap::from([(0, State::new())]);
        for (n, op) in ops.iter().enumerate() {
            apply(&heap, op, n);
            if matches!(op, Op::Step) || n == 0 {
                writer.step().unwrap();
                states.insert(fs::metadata(&path).unwrap().len(), state(&heap));
            }
        }
        let whole = fs::read(&path).unwrap();
        for cut in cuts {
            let cut = cut.index(whole.len() + 1);
            fs::write(&path, &whole[..cut]).unwrap();
            let heap = Heap::new(ZONE);
            // Within its first bytes it is no journal at all.
            let result = load(&heap, &path);
            prop_assert_eq!(result.is_err(), cut < 16, "cut at {}", cut);
            let (_, expected) = states.range(..=cut as u64).next_back().unwrap();
            prop_assert_eq!(&state(&heap), expected, "cut at {} of {}", cut, whole.len());
        }
    }

    #[test]
    fn a_byte_that_changed_is_noticed(
        ops in prop::collection::vec(op(), 1..40),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let (heap, folder) = (Heap::new(ZONE), Folder::new());
        let path = folder.journal();
        let mut writer = writer(&heap, &path);
        let mut states = vec![State::new()];
        for (n, op) in ops.iter().enumerate() {
            apply(&heap, op, n);
            writer.step().unwrap();
            states.push(state(&heap));
        }
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        fs::write(&path, bytes).unwrap();
        let heap = Heap::new(ZONE);
        let stop = load(&heap, &path);
        prop_assert!(!matches!(stop, Ok(None | Some(Stop::End))), "{:?}", stop);
        prop_assert!(states.contains(&state(&heap)));
    }
}

#[test]
fn a_follower_takes_what_is_added_and_what_replaces_the_file() {
    let (heap, other, folder) = (Heap::new(ZONE), Heap::new(ZONE), Folder::new());
    let path = folder.journal();
    let mut writer = writer(&heap, &path);
    other.write(|t| t.upsert(2, b"stale", b"x", no_cells).map(drop)).unwrap();
    let mut tail: Option<Tail> = None;
    let mut files = 0;
    for n in 0..600_u32 {
        let value = vec![n as u8; 20_000];
        heap.write(|t| t.upsert(1, &(n % 7).to_le_bytes(), &value, cells).map(drop)).unwrap();
        writer.step().unwrap();
        if n % 5 > 0 {
            continue;
        }
        if tail.as_ref().is_none_or(Tail::is_replaced) {
            (tail, files) = (Tail::open(&path, FORMAT).unwrap(), files + 1);
        }
        let tail = tail.as_mut().unwrap();
        assert!(tail.has_more());
        other
            .write(|t| tail.replay(t).map(|stop| assert_eq!(stop, Stop::End)).map_err(full))
            .unwrap();
        assert!(tail.has_base() && !tail.has_more());
        assert_eq!(state(&other), state(&heap));
    }
    assert!(files > 1, "12 MB of deltas replace the file");
    assert!(fs::metadata(&path).unwrap().len() < 4 << 20);
    let free = heap.free_all();
    drop(writer);
    assert_eq!(heap.free_all(), free, "the pin held nothing but the newest");
}

fn full(error: ReplayError) -> crate::WriteError {
    match error {
        ReplayError::Store(error) => error,
        ReplayError::Io(error) => panic!("{error}"),
    }
}

#[test]
fn a_step_that_fails_is_made_good_by_a_later_one() {
    let (heap, folder) = (Heap::new(ZONE), Folder::new());
    let path = folder.0.path().join("missing/journal");
    let mut writer = writer(&heap, &path);
    apply(&heap, &Op::Put(1, 1, 100), 1);
    assert_eq!(writer.step().unwrap_err().kind(), io::ErrorKind::NotFound);
    apply(&heap, &Op::Put(1, 1, 100), 2);
    let free = heap.free_all();
    apply(&heap, &Op::Put(1, 1, 100), 3);
    writer.step().unwrap_err();
    assert!(heap.free_all() > free, "what could not be written is not held for ever");
    fs::create_dir(path.parent().unwrap()).unwrap();
    writer.step().unwrap();
    assert_eq!(loaded(&path), (state(&heap), Some(Stop::End)));
}

#[test]
fn a_file_that_was_removed_is_written_again() {
    let (heap, folder) = (Heap::new(ZONE), Folder::new());
    let mut writer = writer(&heap, &folder.journal());
    apply(&heap, &Op::Put(1, 1, 100), 1);
    writer.step().unwrap();
    fs::remove_file(folder.journal()).unwrap();
    writer.step().unwrap();
    assert_eq!(loaded(&folder.journal()), (state(&heap), Some(Stop::End)));
}

#[test]
fn a_store_that_is_too_small_stays_as_it_was() {
    let (heap, folder) = (Heap::new(ZONE), Folder::new());
    for key in 0..100 {
        apply(&heap, &Op::Put(1, key, 10_000), 1);
    }
    writer(&heap, &folder.journal()).step().unwrap();
    let small = Heap::new(300_000);
    let free = small.free_all();
    assert!(matches!(load(&small, &folder.journal()), Err(ReplayError::Store(_))));
    assert_eq!((state(&small), small.free_all()), (State::new(), free));
}

#[test]
fn what_is_no_journal_is_refused() {
    let folder = Folder::new();
    let path = folder.journal();
    assert!(matches!(Tail::open(&path, FORMAT), Ok(None)));
    writer(&Heap::new(ZONE), &path).step().unwrap();
    let other = Format { version: 4, ..FORMAT };
    assert!(Tail::open(&path, other).is_err_and(|e| e.to_string().contains("version")));
    let link = folder.0.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Tail::open(&link, FORMAT).is_err());
    assert!(Tail::open(folder.0.path(), FORMAT).is_err_and(|e| e.to_string().contains("plain")));
}

#[test]
fn a_journal_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    writer(&Heap::new(ZONE), &folder.journal()).step().unwrap();
    let mode = fs::metadata(folder.journal()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn one_store_owns_a_journal_and_a_later_one_may_claim_it() {
    let folder = Folder::new();
    let path = folder.journal();
    assert!(Ownership::is_free(&path).unwrap());
    let Acquired::Owned(first) = Ownership::acquire(&path, 10).unwrap() else { panic!() };
    assert!(matches!(Ownership::acquire(&path, 20).unwrap(), Acquired::Busy));
    assert!(!Ownership::is_free(&path).unwrap());
    assert_eq!(Ownership::birth(&path).unwrap(), Some(10));
    assert!(!Claim::is_made(&path).unwrap());
    let claim = Claim::make(&path).unwrap().unwrap();
    assert!(Claim::is_made(&path).unwrap());
    drop(first);
    assert!(matches!(Ownership::acquire(&path, 20).unwrap(), Acquired::Owned(_)));
    let Acquired::Owned(second) = Ownership::acquire(&path, 20).unwrap() else { panic!() };
    assert!(second.is_in_place());
    fs::remove_file(folder.0.path().join("journal.lock")).unwrap();
    assert!(!second.is_in_place());
    drop(claim);
    assert!(!Claim::is_made(&path).unwrap());
}

#[test]
fn one_process_is_the_agent_and_one_has_the_pin() {
    let heap = Heap::new(ZONE);
    assert!(heap.store.become_agent(1) && heap.store.become_agent(1));
    assert!(!heap.store.become_agent(2));
    heap.store.resign(2);
    assert!(!heap.store.become_agent(2), "only the agent resigns");
    heap.store.resign(1);
    assert!(heap.store.become_agent(2));
    let folder = Folder::new();
    let first = writer(&heap, &folder.journal());
    assert!(Writer::new(heap.store, &folder.journal(), FORMAT, 1).is_none());
    drop(first);
    assert!(Writer::new(heap.store, &folder.journal(), FORMAT, 1).is_some());
}
