//! Blocks of memory inside the store: allocation, freeing, and rebuilding from what is alive.
//!
//! Shape:   a block is `granules u32, flags u32`, then its payload. A free block keeps the links of its
//!          free list in its payload and its size in its last word, where its successor finds it.
//! Finding: size classes (exact below 32 granules, eighths of a power of two above), a bitmap of classes
//!          that have a free block: constant time. Neighbours that are free are joined at once.
//! Exact:   a block has just the granules it needs, so the bytes in use depend on what is stored and not on
//!          the order it was stored in.
//! Source:  two-level segregated fit, Masmano et al. 2004. Rejected: nginx's slab, which a killed writer
//!          leaves broken for good; this one is rebuilt from the blocks that are reachable.

use crate::WriteError;
use crate::layout::CLASSES;
use crate::memory::{Block, GRANULE, Memory};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a block before its payload.
pub(crate) const HEAD: usize = 8;

const GRANULES: usize = 0;
const FLAGS: usize = 4;
const NEXT_FREE: usize = 8;
const PREVIOUS_FREE: usize = 12;

const FREE: u32 = 1;
const BEFORE_IS_FREE: u32 = 2;

/// How far one size class is searched for a fit before a larger class is split.
const SEARCH: usize = 16;

fn class(granules: u32) -> usize {
    if granules < 32 {
        return granules as usize;
    }
    let log = granules.ilog2();
    32 + (log as usize - 5) * 8 + ((granules >> (log - 3)) & 7) as usize
}

/// Granules of a block with `payload` bytes.
pub(crate) fn granules_for(payload: usize) -> Result<u32, WriteError> {
    let granules = (payload + HEAD).div_ceil(GRANULE);
    u32::try_from(granules).map_err(|_| WriteError::TooLong { bytes: payload })
}

/// What upserts leave alone, as a part of everything: a removal writes index nodes before anything is freed, and
/// must get through when the store is full. The index is some 6 % of what is stored, so this is enough to remove a
/// quarter of all records in one write.
const KEPT_FOR_REMOVALS: u32 = 64;

/// The number of granules that upserts may use.
pub(crate) fn capacity(memory: Memory) -> u32 {
    let capacity = memory.header().capacity.load(Relaxed);
    capacity - capacity / KEPT_FOR_REMOVALS
}

/// Those of them that are free.
pub(crate) fn free(memory: Memory) -> u32 {
    let kept = memory.header().capacity.load(Relaxed) / KEPT_FOR_REMOVALS;
    memory.header().free.load(Relaxed).saturating_sub(kept)
}

/// Those that are free for a record that takes no more than what it replaces: half of what is kept for removals is among
/// them, since such a write leaves more room than it found.
pub(crate) fn free_for_less(memory: Memory) -> u32 {
    let kept = memory.header().capacity.load(Relaxed) / KEPT_FOR_REMOVALS;
    memory.header().free.load(Relaxed).saturating_sub(kept / 2)
}

/// Granules of an allocated block.
pub(crate) fn granules_of(memory: Memory, block: Block) -> u32 {
    memory.word(block, GRANULES).load(Relaxed)
}

/// A block with `payload` bytes after its head. What it holds is left over from before.
pub(crate) fn allocate(memory: Memory, payload: usize) -> Result<Block, WriteError> {
    let needed = granules_for(payload)?;
    let block = find(memory, needed).ok_or_else(|| WriteError::Full {
        needed_bytes: needed as usize * GRANULE,
        free_bytes: free(memory) as usize * GRANULE,
    })?;
    unlink(memory, block);
    let granules = granules_of(memory, block);
    let after = block + granules;
    memory.word(block, GRANULES).store(needed, Relaxed);
    let flags = memory.word(block, FLAGS).load(Relaxed);
    memory.word(block, FLAGS).store(flags & !FREE, Relaxed);
    if granules > needed {
        link(memory, block + needed, granules - needed, 0);
    } else {
        let flags = memory.word(after, FLAGS).load(Relaxed);
        memory.word(after, FLAGS).store(flags & !BEFORE_IS_FREE, Relaxed);
    }
    let free = memory.header().free.load(Relaxed);
    memory.header().free.store(free - needed, Relaxed);
    Ok(block)
}

/// What a freed block is overwritten with (feature `poison`).
#[cfg(feature = "poison")]
const POISON: u32 = 0xdede_dede;

/// Overwrites the content of a freed block, so that a reader that still uses it reads nonsense.
#[inline]
fn poison(memory: Memory, block: Block, granules: u32) {
    #[cfg(feature = "poison")]
    for offset in (HEAD..granules as usize * GRANULE).step_by(4) {
        memory.word(block, offset).store(POISON, Relaxed);
    }
    #[cfg(not(feature = "poison"))]
    let _ = (memory, block, granules);
}

/// Panics if a block that is read was freed (feature `poison`). It looks behind the links of the free lists: what
/// a live block has there, an epoch, a hash or a node's two maps, is this value once in 2^64 times.
#[inline]
pub(crate) fn check_alive(memory: Memory, block: Block) {
    #[cfg(feature = "poison")]
    {
        let poison = u64::from(POISON) << 32 | u64::from(POISON);
        let is_poison = memory.long(block, PREVIOUS_FREE + 4).load(Relaxed) == poison;
        assert!(!is_poison, "block {block} of the store is read after it was freed");
    }
    #[cfg(not(feature = "poison"))]
    let _ = (memory, block);
}

pub(crate) fn release(memory: Memory, block: Block) {
    let mut granules = granules_of(memory, block);
    let mut flags = memory.word(block, FLAGS).load(Relaxed);
    assert!(flags & FREE == 0, "a block of the store was freed twice");
    poison(memory, block, granules);
    let free = memory.header().free.load(Relaxed);
    memory.header().free.store(free + granules, Relaxed);
    let mut start = block;
    let after = block + granules;
    if memory.word(after, FLAGS).load(Relaxed) & FREE != 0 {
        unlink(memory, after);
        granules += granules_of(memory, after);
    }
    if flags & BEFORE_IS_FREE != 0 {
        // The size of a free block is its last word too, right before this block.
        let before = memory.word(block - 1, GRANULE - 4).load(Relaxed);
        start = block - before;
        unlink(memory, start);
        granules += before;
        flags = memory.word(start, FLAGS).load(Relaxed);
    }
    link(memory, start, granules, flags & BEFORE_IS_FREE);
}

fn find(memory: Memory, needed: u32) -> Option<Block> {
    let header = memory.header();
    let own = class(needed);
    let fits = |limit: usize| {
        let mut block = header.free_lists[own].load(Relaxed);
        for _ in 0..limit {
            if block == 0 {
                return None;
            }
            if granules_of(memory, block) >= needed {
                return Some(block);
            }
            block = memory.word(block, NEXT_FREE).load(Relaxed);
        }
        None
    };
    fits(SEARCH)
        .or_else(|| {
            let larger =
                (own + 1..CLASSES).step_by_word(|word| header.free_classes[word].load(Relaxed))?;
            Some(header.free_lists[larger].load(Relaxed))
        })
        .or_else(|| fits(usize::MAX))
}

trait FirstSet {
    /// The first number of the range whose bit is set in a bitmap read a word at a time.
    fn step_by_word(self, word: impl Fn(usize) -> u64) -> Option<usize>;
}

impl FirstSet for std::ops::Range<usize> {
    fn step_by_word(self, word: impl Fn(usize) -> u64) -> Option<usize> {
        let mut at = self.start;
        while at < self.end {
            let rest = word(at / 64) >> (at % 64);
            if rest != 0 {
                return Some(at + rest.trailing_zeros() as usize);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

/// Makes `granules` from `block` on a free block of its list.
fn link(memory: Memory, block: Block, granules: u32, keep: u32) {
    let header = memory.header();
    let class = class(granules);
    let next = header.free_lists[class].load(Relaxed);
    memory.word(block, GRANULES).store(granules, Relaxed);
    memory.word(block, FLAGS).store(FREE | keep, Relaxed);
    memory.word(block, NEXT_FREE).store(next, Relaxed);
    memory.word(block, PREVIOUS_FREE).store(0, Relaxed);
    memory.word(block + granules - 1, GRANULE - 4).store(granules, Relaxed);
    let flags = memory.word(block + granules, FLAGS).load(Relaxed);
    memory.word(block + granules, FLAGS).store(flags | BEFORE_IS_FREE, Relaxed);
    if next != 0 {
        memory.word(next, PREVIOUS_FREE).store(block, Relaxed);
    }
    header.free_lists[class].store(block, Relaxed);
    let bits = &header.free_classes[class / 64];
    bits.store(bits.load(Relaxed) | 1 << (class % 64), Relaxed);
}

fn unlink(memory: Memory, block: Block) {
    let header = memory.header();
    let class = class(granules_of(memory, block));
    let next = memory.word(block, NEXT_FREE).load(Relaxed);
    let previous = memory.word(block, PREVIOUS_FREE).load(Relaxed);
    if next != 0 {
        memory.word(next, PREVIOUS_FREE).store(previous, Relaxed);
    }
    if previous != 0 {
        memory.word(previous, NEXT_FREE).store(next, Relaxed);
        return;
    }
    header.free_lists[class].store(next, Relaxed);
    if next == 0 {
        let bits = &header.free_classes[class / 64];
        bits.store(bits.load(Relaxed) & !(1 << (class % 64)), Relaxed);
    }
}

/// Makes everything free but the blocks in `alive` (first granule and size, in any order, also twice).
pub(crate) fn rebuild(memory: Memory, alive: &mut [(Block, u32)]) {
    let header = memory.header();
    let is_new = alive.is_empty();
    alive.sort_unstable();
    header.free_lists.iter().for_each(|list| list.store(0, Relaxed));
    header.free_classes.iter().for_each(|bits| bits.store(0, Relaxed));
    let first = header.first_block.load(Relaxed);
    let end = first + header.capacity.load(Relaxed);
    // The last granule is never free, so that no block looks past the end.
    memory.word(end, GRANULES).store(1, Relaxed);
    memory.word(end, FLAGS).store(0, Relaxed);
    let mut free = 0;
    let mut at = first;
    for &(block, granules) in alive.iter().chain(&[(end, 1)]) {
        if block < at {
            continue;
        }
        memory.word(block, GRANULES).store(granules, Relaxed);
        memory.word(block, FLAGS).store(0, Relaxed);
        if block > at {
            // A new store's memory was never anything.
            if !is_new {
                poison(memory, at, block - at);
            }
            link(memory, at, block - at, 0);
            free += block - at;
        }
        at = block + granules;
    }
    header.free.store(free, Relaxed);
}
