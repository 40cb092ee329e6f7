//! What a worker has made of records, by their id, up to a number of bytes.
//!
//! Kept under the generation that wrote the record: what came of a replaced one is made anew, and the old goes.

use std::collections::HashMap;

/// The least recently used goes first.
pub struct Cache<T> {
    entries: HashMap<Vec<u8>, Entry<T>>,
    max_bytes: usize,
    bytes: usize,
    uses: u64,
}

struct Entry<T> {
    /// Of the record.
    generation: u64,
    made: T,
    bytes: usize,
    last_use: u64,
}

impl<T> Cache<T> {
    /// An empty one.
    pub fn new(max_bytes: usize) -> Self {
        Cache { entries: HashMap::new(), max_bytes, bytes: 0, uses: 0 }
    }

    /// What was made of a record that never changes.
    pub fn known(&mut self, id: &[u8]) -> Option<&T> {
        self.uses += 1;
        let entry = self.entries.get_mut(id)?;
        entry.last_use = self.uses;
        Some(&entry.made)
    }

    /// What was made of a record, or is made now, with the bytes that it takes.
    pub fn get(
        &mut self,
        id: &[u8],
        generation: u64,
        make: impl FnOnce() -> Option<(T, usize)>,
    ) -> Option<&T> {
        self.uses += 1;
        if self.entries.get(id).is_none_or(|entry| entry.generation != generation) {
            let (made, bytes) = make()?;
            self.put(id, Entry { generation, made, bytes, last_use: 0 });
        }
        let entry = self.entries.get_mut(id)?;
        entry.last_use = self.uses;
        Some(&entry.made)
    }

    fn put(&mut self, id: &[u8], entry: Entry<T>) {
        self.bytes += entry.bytes;
        if let Some(old) = self.entries.insert(id.to_vec(), entry) {
            self.bytes -= old.bytes;
        }
        while self.bytes > self.max_bytes && self.entries.len() > 1 {
            let others = self.entries.iter().filter(|(other, _)| other.as_slice() != id);
            let Some(oldest) = others.min_by_key(|(_, e)| e.last_use).map(|(id, _)| id.clone())
            else {
                return;
            };
            if let Some(old) = self.entries.remove(&oldest) {
                self.bytes -= old.bytes;
            }
        }
    }
}
