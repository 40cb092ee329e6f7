//! What an encoder has written, until the client has it.

use crate::basic::chain::{Buffer, Link, Shown};
use std::collections::VecDeque;
use std::rc::Rc;

/// Most buffers of one response.
const MOST: usize = 4;
/// Bytes of each.
const BYTES: usize = 16 * 1024;

/// Memory, and what nginx knows it by. nginx reads it from when it was handed on until it has
/// nothing left to read.
struct Piece {
    memory: Vec<u8>,
    written: usize,
    handles: Rc<(Buffer, Link)>,
}

/// The buffers of a response.
#[derive(Default)]
pub struct Output {
    made: usize,
    free: Vec<Piece>,
    /// What is written to now.
    current: Option<Piece>,
    /// To be handed on.
    ready: Vec<Piece>,
    /// With nginx.
    busy: VecDeque<Piece>,
    /// What was sent before is to reach the client, though nothing was written since.
    is_flush: bool,
    /// Says so. It never changes, so nginx may have it more than once.
    signal: Option<Rc<(Buffer, Link)>>,
}

impl Output {
    /// Room for what is to be written, which is never empty; `None`: nginx has all buffers.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.current.is_none() {
            self.current = Some(self.take()?);
        }
        let piece = self.current.as_mut()?;
        piece.memory.get_mut(piece.written..)
    }

    fn take(&mut self) -> Option<Piece> {
        if let Some(piece) = self.free.pop() {
            return Some(Piece { written: 0, ..piece });
        }
        if self.made == MOST {
            return None;
        }
        self.made += 1;
        let handles = Rc::new((Buffer::default(), Link::default()));
        handles.1.set_buffer(&handles.0);
        Some(Piece { memory: vec![0; BYTES], written: 0, handles })
    }

    /// So many bytes were written to the room; answers whether it is full, and so to be handed on.
    /// `is_flush`: more of what is to reach the client may follow, or nothing.
    pub fn wrote(&mut self, bytes: usize, is_flush: bool) -> bool {
        let Some(piece) = self.current.as_mut() else { return false };
        piece.written = piece.written.saturating_add(bytes).min(BYTES);
        let is_full = piece.written == BYTES;
        if is_full {
            self.end(Shown { is_flush, is_last: false });
        }
        is_full
    }

    /// What was written so far, and the head before it, is to reach the client.
    pub fn flush(&mut self) {
        let shown = Shown { is_flush: true, is_last: false };
        if self.current.as_ref().is_some_and(|piece| piece.written > 0) {
            return self.end(shown);
        }
        match self.ready.last() {
            Some(piece) => piece.handles.0.mark(shown),
            None => self.is_flush = true,
        }
    }

    /// What was written is the last of it.
    pub fn finish(&mut self) {
        self.end(Shown { is_flush: false, is_last: true });
        self.free.clear();
    }

    /// Makes the current buffer ready. An empty one is the last: nginx may look at it after it was
    /// handed on, however little there is to read, and so it is never used again. Where there is no
    /// current one, it was full just now, and says it itself.
    fn end(&mut self, shown: Shown) {
        let Some(piece) = self.current.take() else {
            self.ready.last().into_iter().for_each(|piece| piece.handles.0.mark(shown));
            return;
        };
        let Piece { mut memory, written, handles } = piece;
        handles.0.show(&mut memory, written, shown);
        self.ready.push(Piece { memory, written, handles });
    }

    /// Something is to be handed on.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || self.is_flush
    }

    /// nginx has some.
    pub fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// nginx has all.
    pub fn is_full(&self) -> bool {
        self.busy.len() == MOST
    }

    /// The chain of what is ready, which is with nginx from now on; `None`: nothing is.
    pub fn chain(&mut self) -> Option<&Link> {
        if std::mem::take(&mut self.is_flush) && self.ready.is_empty() {
            let signal = self.signal.get_or_insert_with(|| {
                let (buffer, link) = (Buffer::default(), Link::default());
                buffer.mark(Shown { is_flush: true, is_last: false });
                let signal = Rc::new((buffer, link));
                signal.1.set_buffer(&signal.0);
                signal
            });
            return Some(&signal.1);
        }
        let at = self.busy.len();
        for pair in self.ready.windows(2) {
            if let [one, next] = pair {
                one.handles.1.lead_to_link(Some(&next.handles.1));
            }
        }
        self.ready.last().into_iter().for_each(|last| last.handles.1.lead_to_link(None));
        self.busy.extend(self.ready.drain(..));
        self.busy.get(at).map(|first| &first.handles.1)
    }

    /// Takes back what nginx has read.
    pub fn reclaim(&mut self) {
        while let Some(piece) = self.busy.pop_front() {
            if piece.handles.0.unread_bytes() > 0 {
                self.busy.push_front(piece);
                return;
            }
            self.free.push(piece);
        }
    }
}
