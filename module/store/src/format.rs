//! The format of the block: what makes one, and what tells it from another.

use crate::OpenError;
use crate::arena;
use crate::layout::Header;
use crate::memory::{GRANULE, Memory};
use crate::record::WITH_CELLS;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// "oxigress", and the number of the layout in its last byte. A change of any structure in the block
/// changes the number: two layouts never read each other.
const LAYOUT: u64 = u64::from_be_bytes(*b"oxigres\x03");

pub(crate) fn initialise(memory: Memory, bytes: usize, seed: [u64; 2]) -> Result<(), OpenError> {
    let first = size_of::<Header>().div_ceil(GRANULE);
    // Room for a generation and a few records, and the last granule that ends the arena.
    let least = (first + 64) * GRANULE;
    // Granule numbers have 31 bits: 64 GiB. The highest bit is of batches.
    let end = u32::try_from(bytes / GRANULE).unwrap_or(WITH_CELLS).min(WITH_CELLS - 1);
    if bytes < least {
        return Err(OpenError::TooSmall { bytes, least });
    }
    let header = memory.header();
    header.seed[0].store(seed[0], Relaxed);
    header.seed[1].store(seed[1], Relaxed);
    header.first_block.store(first as u32, Relaxed);
    header.capacity.store(end - 1 - first as u32, Relaxed);
    header.bytes.store(bytes as u64, Relaxed);
    arena::rebuild(memory, &mut []);
    header.layout.store(LAYOUT, Release);
    Ok(())
}

pub(crate) fn check(memory: Memory, bytes: usize) -> Result<(), OpenError> {
    let least = size_of::<Header>();
    if bytes < least {
        return Err(OpenError::TooSmall { bytes, least });
    }
    let header = memory.header();
    let found = header.layout.load(Relaxed);
    if found != LAYOUT || header.bytes.load(Relaxed) != bytes as u64 {
        return Err(OpenError::Layout { found, known: LAYOUT });
    }
    Ok(())
}
