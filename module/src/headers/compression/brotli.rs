//! A body through the crate `brotli`.
//!
//! Bounds:  a block of [`Brotli::block`] bytes is compressed at once, and ends in a flush, so that
//!          the compressor never works on more than one: at the levels that are used some 2 ms.
//!          From level 7 on its tables take 10 to 34 MB a body, and from 10 on a block takes more
//!          than 40 ms: such levels count as [`MOST_LEVEL`]. With the window of 256 KB a body takes
//!          what [`Brotli::bytes`] says, from its first byte to its last.
//! Errors:  none that input could cause; what the crate answers ends the response.

use crate::access::buffers::Reserved;
use brotli::enc::StandardAlloc;
use brotli::enc::encode::{
    BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct,
};
use nginx::{Ask, Encoded, Encoder};

/// Higher levels count as this one.
const MOST_LEVEL: u32 = 6;
/// The window is 2 to that many bytes. With 16 the crate takes tables of 33 MB from level 5 on.
const WINDOW_BITS: u32 = 18;
/// The compressor looks at 2 to that many bytes of input at once: the least it can.
const INPUT_BITS: u32 = 16;

/// A body that is being compressed.
pub struct Brotli {
    state: Box<BrotliEncoderStateStruct<StandardAlloc>>,
    block: usize,
    /// Bytes of the block that is not flushed yet.
    in_block: usize,
    /// What was begun and is not written yet.
    begun: Option<Piece>,
    is_finished: bool,
    /// Given back with it.
    _memory: Reserved,
}

/// A piece of input, of which so many bytes are left, and what is done behind it.
#[derive(Clone, Copy)]
struct Piece {
    left: usize,
    then: Ask,
}

impl Brotli {
    /// The most memory of a body, its buffers included, as measured and rounded up.
    pub fn bytes(level: u32) -> u64 {
        let kilobytes = match level.min(MOST_LEVEL) {
            0 | 1 => 192,
            2 | 3 => 1_280,
            4 => 1_792,
            5 => 2_112,
            _ => 3_136,
        };
        kilobytes << 10
    }

    /// A body of that level, whose memory is counted.
    pub fn new(level: u32, memory: Reserved) -> Self {
        let level = level.min(MOST_LEVEL);
        let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
        for (parameter, value) in [
            (BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level),
            (BrotliEncoderParameter::BROTLI_PARAM_LGWIN, WINDOW_BITS),
            (BrotliEncoderParameter::BROTLI_PARAM_LGBLOCK, INPUT_BITS),
        ] {
            state.set_parameter(parameter, value);
        }
        let block = if level < 5 { 32 * 1024 } else { 16 * 1024 };
        Brotli { state, block, in_block: 0, begun: None, is_finished: false, _memory: memory }
    }

    /// The next piece of so much input; `None`: there is nothing to do.
    fn begin(&mut self, rest: usize, ask: Ask) -> Option<Piece> {
        let left = rest.min(self.block - self.in_block);
        let then = match ask {
            _ if self.is_finished => return None,
            Ask::Finish if left == rest => Ask::Finish,
            Ask::Flush if left == rest && self.in_block + left > 0 => Ask::Flush,
            _ if left == 0 => return None,
            _ if self.in_block + left == self.block => Ask::Flush,
            _ => Ask::More,
        };
        self.in_block += left;
        Some(Piece { left, then })
    }

    /// Compresses; answers how much was taken and written.
    fn compress(&mut self, then: Ask, input: &[u8], output: &mut [u8]) -> Option<(usize, usize)> {
        let operation = match then {
            Ask::More => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
            Ask::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
            Ask::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
        };
        let (mut unread, mut read) = (input.len(), 0);
        let (mut room, mut written) = (output.len(), 0);
        let is_fine = self.state.compress_stream(
            operation,
            &mut unread,
            input,
            &mut read,
            &mut room,
            output,
            &mut written,
            &mut None,
            &mut |_, _, _, _| (),
        );
        is_fine.then_some((read, written))
    }
}

impl Encoder for Brotli {
    fn encode(&mut self, input: &[u8], ask: Ask, output: &mut [u8]) -> Option<Encoded> {
        let (mut taken, mut written) = (0, 0);
        loop {
            let rest = input.get(taken..)?;
            let Some(piece) = self.begun.take().or_else(|| self.begin(rest.len(), ask)) else {
                return Some(Encoded { taken, written, is_done: true });
            };
            let given = rest.get(..piece.left.min(rest.len()))?;
            // Of a piece that has begun less may be at hand than was.
            let then = if given.len() < piece.left { Ask::More } else { piece.then };
            let (read, wrote) = self.compress(then, given, output.get_mut(written..)?)?;
            (taken, written) = (taken + read, written + wrote);
            let left = piece.left - read;
            if left == 0 && !self.state.has_more_output() {
                match piece.then {
                    Ask::More => {}
                    Ask::Flush => self.in_block = 0,
                    Ask::Finish => (self.in_block, self.is_finished) = (0, true),
                }
                continue;
            }
            self.begun = Some(Piece { left, ..piece });
            let is_full = written == output.len();
            if is_full || taken == input.len() && left > 0 {
                return Some(Encoded { taken, written, is_done: false });
            }
            if (read, wrote) == (0, 0) {
                return None;
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.in_block > 0 || self.begun.is_some()
    }

    fn bytes_of_turn(&self) -> usize {
        self.block
    }
}
