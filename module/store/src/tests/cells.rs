//! The cells of records survive changes of their values.

use super::*;

/// The value's bytes name cells of two words.
pub fn a_cell_for_each_byte(_: u8, value: &[u8]) -> CellNames<'_> {
    let mut names: Vec<_> = value.chunks(1).collect();
    names.dedup();
    CellNames { names, words: 2 }
}

#[test]
fn cells_stay_with_their_names() {
    let heap = Heap::new(1 << 20);
    let reader = heap.attach(0, 1);
    let put = |value: &[u8]| {
        heap.write(|t| t.upsert(1, b"a", value, a_cell_for_each_byte).map(drop)).unwrap();
    };
    let all = || -> Vec<(u64, u64)> {
        let guard = reader.read();
        let record = guard.get(1, b"a").unwrap();
        let cells = (0..record.cell_count()).map(|n| record.cell(n).unwrap());
        cells.map(|c| (c[0].load(Ordering::Relaxed), c[1].load(Ordering::Relaxed))).collect()
    };
    let free_bytes = || {
        drop(reader.read());
        heap.free_all()
    };
    put(b"xy");
    let free = free_bytes();
    let first = all();
    assert_ne!(first[0].0, first[1].0, "each cell has a number of its own");
    for (n, name) in [(0, 5), (1, 6)] {
        reader.read().get(1, b"a").unwrap().cell(n).unwrap()[1].store(name, Ordering::Relaxed);
    }
    put(b"zyx");
    let second = all();
    assert_eq!(second[1..], [(first[1].0, 6), (first[0].0, 5)], "moved, not made anew");
    assert_eq!(second[0].1, 0);
    put(b"y");
    assert_eq!(all(), [(first[1].0, 6)]);
    put(b"xy");
    assert_eq!(all()[0].1, 0, "a cell that was gone begins anew");
    assert_ne!(all()[0].0, first[0].0, "and has another number");
    assert_eq!(free_bytes(), free, "nothing is left behind");
    heap.write(|t| t.remove(1, b"a").map(drop)).unwrap();
    put(b"xy");
    assert_eq!(all()[0].1, 0);
}
