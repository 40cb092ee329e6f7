//! Writers that are killed at each of their steps.

use super::cells::a_cell_for_each_byte;
use super::*;

struct Kill;

thread_local!(
    /// The step at which a writer dies, and how many times it comes to it first.
    static ARMED: std::cell::Cell<(&'static str, u32)> = const { std::cell::Cell::new(("", 0)) }
);

fn kill_where_armed() {
    set_hook(|name| {
        let (armed, after) = ARMED.get();
        if armed == name {
            ARMED.set((armed, after.saturating_sub(1)));
            if after == 1 {
                std::panic::panic_any(Kill);
            }
        }
    });
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload().is::<Kill>() {
            report(panic);
        }
    }));
}

fn content(heap: &Heap, round: u32) -> Result<Live, WriteError> {
    heap.write(|t| {
        for n in 0..60_u32 {
            t.upsert(
                1,
                &n.to_le_bytes(),
                &vec![round as u8; 10 + (n * round) as usize % 300],
                a_cell_for_each_byte,
            )?;
        }
        (0..20_u32).try_for_each(|n| t.remove(1, &(n + round % 7).to_le_bytes()).map(drop))
    })
}

/// The records are those of one round.
fn is_whole(guard: &Guard<'_>) -> bool {
    [3, 4, 5].iter().any(|round| {
        (30..60_u32).all(|n| guard.get(1, &n.to_le_bytes()).is_some_and(|r| r.value()[0] == *round))
    })
}

/// A kill at any step: the next writer finds the old generation or the new one, and no byte is lost.
#[test]
fn a_writer_that_dies_at_any_step_leaves_a_whole_generation() {
    kill_where_armed();
    let reference = Heap::new(1 << 20);
    content(&reference, 9).unwrap();
    let free = reference.free_all();
    for name in FAILPOINTS {
        let mut hits = 0;
        for after in [1, 2, 3, 7, 50] {
            let heap = Heap::new(1 << 20);
            let reader = heap.attach(0, 1);
            content(&heap, 3).unwrap();
            ARMED.set((name, after));
            let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                content(&heap, 4).unwrap();
                drop(reader.read());
                content(&heap, 5).unwrap();
            }));
            hits += u32::from(killed.is_err());
            ARMED.set(("", 0));
            let reader = heap.attach(0, 1);
            assert!(is_whole(&reader.read()), "{name} {after}");
            content(&heap, 9).unwrap();
            drop(reader.read());
            assert_eq!(heap.free_all(), free, "{name} {after}");
        }
        assert!(hits > 0, "{name} was never passed");
    }
}
