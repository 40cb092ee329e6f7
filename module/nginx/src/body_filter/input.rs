//! Parts of a body that nginx gave, until they are taken.

use super::Ask;
use crate::basic::chain::{Buffer, Link};
use crate::basic::pool::Pool;

/// A queue of buffers. Its links lie in the request's pool and are used again, so that an endless
/// answer takes no more of them than are needed at once.
#[derive(Default)]
pub struct Input {
    /// Leads to the first link.
    head: Link,
    /// Leads to the links that wait for use.
    spare: Link,
}

impl Input {
    /// Adds the buffers of a chain; `None` when memory is out.
    pub fn take(&mut self, pool: &Pool, part: Option<&Link>) -> Option<()> {
        if part.is_none() {
            return Some(());
        }
        let mut last = &self.head;
        while let Some(next) = last.next() {
            last = next;
        }
        let mut part = part;
        while let Some(given) = part {
            let link = match self.spare.unhook() {
                Some(link) => link,
                None => Link::new_in(pool)?,
            };
            link.set_buffer(given.buffer());
            last.hook(link);
            last = link;
            part = given.next();
        }
        Some(())
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.head.next().is_none()
    }

    /// The first buffer, and what is asked for behind it.
    pub fn first(&self) -> Option<(&Buffer, Ask)> {
        let buffer = self.head.next()?.buffer();
        let ask = match (buffer.is_last(), buffer.is_flush()) {
            (true, _) => Ask::Finish,
            (false, true) => Ask::Flush,
            (false, false) => Ask::More,
        };
        Some((buffer, ask))
    }

    /// The first buffer has been taken.
    pub fn pop(&mut self) {
        if let Some(link) = self.head.unhook() {
            self.spare.hook(link);
        }
    }
}
