//! Generations, worker slots, batches of replaced blocks, and recovery after a writer that died.
//!
//! A generation: `number u64, epoch u64, root u32, 0, counts [u32; 16]`.
//! A batch: `generation u64, next u32, count u32`, then block numbers: what that generation replaced;
//! an attachment with [`WITH_CELLS`] stands for its cells too.
//!
//! A batch is linked before its generation is published. If the writer dies between the two, recovery
//! finds a batch newer than the live generation and drops it; its blocks are in use.

use crate::arena::{self, HEAD};
use crate::fault_injection::failpoint::failpoint;
use crate::fault_injection::planted::is_planted;
use crate::index::{self, Visited};
use crate::memory::{Block, Memory};
use crate::record::{self, Record, WITH_CELLS};
use crate::sync::fence;
use crate::{Live, WriteError};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;

const NUMBER: usize = HEAD;
const EPOCH: usize = HEAD + 8;
const ROOT: usize = HEAD + 16;
const COUNTS: usize = HEAD + 24;
const KINDS: usize = 16;
const GENERATION_BYTES: usize = 24 + KINDS * 4;

const BATCH_GENERATION: usize = HEAD;
const BATCH_NEXT: usize = HEAD + 8;
const BATCH_COUNT: usize = HEAD + 12;
const BATCH_BLOCKS: usize = HEAD + 16;

/// Blocks in one batch: bounds both the contiguous memory a batch needs and the time one is freed in.
const BATCH: usize = 1000;

/// The root of a generation's index, and its number.
#[inline]
pub(crate) fn root(memory: Memory, generation: Block) -> (Block, u64) {
    arena::check_alive(memory, generation);
    (memory.word(generation, ROOT).load(Relaxed), memory.long(generation, NUMBER).load(Relaxed))
}

/// How many records of a kind a generation has; `kind` is below 16.
#[inline]
pub(crate) fn count(memory: Memory, generation: Block, kind: usize) -> u32 {
    memory.word(generation, COUNTS + kind * 4).load(Relaxed)
}

pub(crate) fn live(memory: Memory, generation: Block) -> Live {
    let count = |kind| count(memory, generation, kind);
    Live {
        epoch: memory.long(generation, EPOCH).load(Relaxed),
        generation: memory.long(generation, NUMBER).load(Relaxed),
        counts: std::array::from_fn(count),
    }
}

/// A generation that is not published yet.
pub(crate) fn write_generation(
    memory: Memory,
    live: &Live,
    root: Block,
) -> Result<Block, WriteError> {
    let block = arena::allocate(memory, GENERATION_BYTES)?;
    memory.long(block, NUMBER).store(live.generation, Relaxed);
    memory.long(block, EPOCH).store(live.epoch, Relaxed);
    memory.word(block, ROOT).store(root, Relaxed);
    for (kind, count) in live.counts.iter().enumerate() {
        memory.word(block, COUNTS + kind * 4).store(*count, Relaxed);
    }
    Ok(block)
}

/// Generation 0, which holds nothing.
pub(crate) fn first_generation(memory: Memory, epoch: u64) {
    let empty = Live { epoch, generation: 0, counts: [0; KINDS] };
    if let Ok(block) = write_generation(memory, &empty, 0) {
        memory.header().current.store(block, Release);
    }
}

/// Lists `blocks` as replaced by `generation`.
pub(crate) fn retire(memory: Memory, generation: u64, blocks: &[Block]) -> Result<(), WriteError> {
    let header = memory.header();
    for part in blocks.chunks(BATCH) {
        let batch = arena::allocate(memory, BATCH_BLOCKS - HEAD + part.len() * 4)?;
        memory.long(batch, BATCH_GENERATION).store(generation, Relaxed);
        memory.word(batch, BATCH_NEXT).store(0, Relaxed);
        memory.word(batch, BATCH_COUNT).store(part.len() as u32, Relaxed);
        for (place, block) in part.iter().enumerate() {
            memory.word(batch, BATCH_BLOCKS + place * 4).store(*block, Relaxed);
        }
        // Release: recovery must not see the link without the batch.
        match header.newest_batch.load(Relaxed) {
            0 => header.oldest_batch.store(batch, Release),
            newest => memory.word(newest, BATCH_NEXT).store(batch, Release),
        }
        header.newest_batch.store(batch, Release);
        failpoint("publish.retire");
    }
    Ok(())
}

/// Frees what every live worker has moved on from: at most `batches` batches. Answers whether more could
/// be freed at once.
pub(crate) fn free_batches(memory: Memory, is_alive: fn(u32) -> bool, batches: usize) -> bool {
    let header = memory.header();
    if header.oldest_batch.load(Relaxed) == 0 {
        return false;
    }
    let safe = safe_generation(memory, is_alive);
    for _ in 0..batches {
        let batch = header.oldest_batch.load(Relaxed);
        if batch == 0 || memory.long(batch, BATCH_GENERATION).load(Relaxed) > safe {
            return false;
        }
        failpoint("free.begin");
        // Cut first: if this process dies now, recovery finds the blocks unreachable and frees them.
        let next = memory.word(batch, BATCH_NEXT).load(Relaxed);
        header.oldest_batch.store(next, Release);
        if next == 0 {
            header.newest_batch.store(0, Release);
        }
        compiler_fence(SeqCst);
        failpoint("free.cut");
        for block in listed(memory, batch) {
            // Cells before their table.
            cells_of(memory, block).for_each(|cell| arena::release(memory, cell));
            arena::release(memory, block & !WITH_CELLS);
            failpoint("free.block");
        }
        arena::release(memory, batch);
    }
    let batch = header.oldest_batch.load(Relaxed);
    batch != 0 && memory.long(batch, BATCH_GENERATION).load(Relaxed) <= safe
}

fn listed(memory: Memory, batch: Block) -> impl Iterator<Item = Block> {
    let count = memory.word(batch, BATCH_COUNT).load(Relaxed) as usize;
    (0..count).map(move |place| memory.word(batch, BATCH_BLOCKS + place * 4).load(Relaxed))
}

/// The cells that go with a block of a batch.
fn cells_of(memory: Memory, listed: Block) -> impl Iterator<Item = Block> {
    let attachment = Some(listed & !WITH_CELLS).filter(|_| listed & WITH_CELLS != 0);
    attachment.into_iter().flat_map(move |attachment| record::cells(memory, attachment))
}

/// Something could be freed, if the workers have moved on.
pub(crate) fn has_batches(memory: Memory) -> bool {
    memory.header().oldest_batch.load(Relaxed) != 0
}

/// The newest generation such that no live worker reads an older one.
fn safe_generation(memory: Memory, is_alive: fn(u32) -> bool) -> u64 {
    if is_planted("early-free") {
        return u64::MAX;
    }
    let header = memory.header();
    // A worker attaches, then loads the root; a writer stores the root, then looks at the slots. With a
    // full fence on both sides one of them sees the other.
    fence(SeqCst);
    let used = header.slots_used.load(Relaxed) as usize;
    let mut safe = u64::MAX;
    let slots = &header.slots[..used.min(crate::MAX_SLOTS)];
    for slot in slots.iter().chain([&header.pin]) {
        let pid = slot.pid.load(Acquire);
        if pid == 0 {
            continue;
        }
        if is_alive(pid) {
            safe = safe.min(slot.acknowledged.load(Acquire));
        } else {
            // Unless a new worker has acquired the slot meanwhile.
            let _ = slot.pid.compare_exchange(pid, 0, Release, Relaxed);
        }
    }
    safe
}

pub(crate) fn attach(memory: Memory, slot: usize, pid: u32) {
    let header = memory.header();
    // Generation 0 holds up every batch until the first acknowledgement.
    header.slots[slot].acknowledged.store(0, Release);
    // An exchange, because a writer that finds the last worker of this slot dead makes one too: so loom sees,
    // as the processor does, that one of the two comes after the other.
    header.slots[slot].pid.swap(pid, AcqRel);
    header.slots_used.fetch_max(slot as u32 + 1, Release);
    if !is_planted("no-fence") {
        fence(SeqCst);
    }
}

/// Acquires the pin for process `pid`, also from a dead process. Returns whether this process has it.
pub(crate) fn attach_pin(memory: Memory, pid: u32, is_alive: fn(u32) -> bool) -> bool {
    let pin = &memory.header().pin;
    let holder = pin.pid.load(Acquire);
    if holder != 0 && is_alive(holder) {
        return false;
    }
    if pin.pid.compare_exchange(holder, pid, AcqRel, Relaxed).is_err() {
        return false;
    }
    // Generation 0 holds up every batch until the first acknowledgement. What was freed before is not reached
    // from what is live after the fence.
    pin.acknowledged.store(0, Release);
    fence(SeqCst);
    true
}

pub(crate) fn acknowledge_pin(memory: Memory, generation: u64) {
    memory.header().pin.acknowledged.store(generation, Release);
}

pub(crate) fn detach_pin(memory: Memory) {
    memory.header().pin.pid.store(0, Release);
}

pub(crate) fn acknowledge(memory: Memory, slot: usize, generation: u64) {
    failpoint("adopt.acknowledge");
    // Release: what this worker read of older generations it has read before.
    memory.header().slots[slot].acknowledged.store(generation, Release);
}

pub(crate) fn detach(memory: Memory, slot: usize) {
    memory.header().slots[slot].pid.store(0, Release);
}

pub(crate) fn workers(memory: Memory) -> Vec<(usize, u32, u64)> {
    let header = memory.header();
    let used = (header.slots_used.load(Acquire) as usize).min(crate::MAX_SLOTS);
    let slots = header.slots[..used].iter().enumerate();
    let all = slots.map(|(n, slot)| (n, slot.pid.load(Relaxed), slot.acknowledged.load(Acquire)));
    all.filter(|(_, pid, _)| *pid != 0).collect()
}

/// Makes the free lists anew: what the live generation and the batches reach is in use, the rest is free.
pub(crate) fn recover(memory: Memory) {
    let header = memory.header();
    let current = header.current.load(Acquire);
    let (root, number) = root(memory, current);
    let mut alive = vec![current];
    index::walk(memory, root, &mut |visited| match visited {
        Visited::Node(node) => alive.push(node),
        Visited::Record(record) => {
            alive.push(record);
            alive.extend(Record::new(memory, record).attached());
        }
    });
    let mut newest = 0;
    let mut batch = header.oldest_batch.load(Acquire);
    while batch != 0 && memory.long(batch, BATCH_GENERATION).load(Relaxed) <= number {
        alive.push(batch);
        for block in listed(memory, batch) {
            alive.push(block & !WITH_CELLS);
            alive.extend(cells_of(memory, block));
        }
        newest = batch;
        batch = memory.word(batch, BATCH_NEXT).load(Acquire);
    }
    header.newest_batch.store(newest, Relaxed);
    match newest {
        0 => header.oldest_batch.store(0, Relaxed),
        newest => memory.word(newest, BATCH_NEXT).store(0, Relaxed),
    }
    alive.retain(|block| *block != 0);
    let mut sized: Vec<_> = alive.iter().map(|&b| (b, arena::granules_of(memory, b))).collect();
    arena::rebuild(memory, &mut sized);
}
