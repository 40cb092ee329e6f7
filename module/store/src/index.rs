//! The index: a persistent hash trie from the hash of a key to its record.
//!
//! Shape:   a node is `generation u64, records u32, nodes u32`, then one word a child: first the records,
//!          then the nodes, each in the order of their 5 bits of hash. Bit n of a map says that a child
//!          for n exists. The root of an empty index is 0.
//! Writing: a node of an older generation is copied and listed as replaced; one of the generation under
//!          construction is changed, or exchanged for one of another size.
//! Unique:  the shape depends on the records alone (a node that would hold a single record is that record
//!          in its parent), so the same records need the same bytes, whatever the history.
//! Source:  CHAMP, Steindorfer and Vinju 2015. Rejected: a radix tree on the key's bytes, deeper for keys
//!          that share long prefixes as host names and ids do.

use crate::WriteError;
use crate::arena::{self, HEAD};
use crate::fault_injection::failpoint::failpoint;
use crate::memory::{Block, Memory};
use crate::record::Record;
use std::sync::atomic::Ordering::Relaxed;

const GENERATION: usize = HEAD;
const RECORDS: usize = HEAD + 8;
const NODES: usize = HEAD + 12;
const CHILDREN: usize = HEAD + 16;

const BITS: u32 = 5;
/// 12 levels of 5 bits and one of 4 use up the hash.
const LEVELS: u32 = 13;

#[inline]
fn bit(hash: u64, level: u32) -> u32 {
    1 << ((hash >> (level * BITS)) & 31)
}

/// The record of a key. It stays for `'g` only if the index does: guards and transactions see to that.
#[inline]
pub(crate) fn find<'g>(
    memory: Memory,
    root: Block,
    hash: u64,
    kind: u8,
    key: &[u8],
) -> Option<Record<'g>> {
    find_block(memory, root, hash, kind, key).map(|block| Record::new(memory, block))
}

/// The record of a hash, whatever its key.
pub(crate) fn find_hashed<'g>(
    memory: Memory,
    root: Block,
    hash: u64,
    kind: u8,
) -> Option<Record<'g>> {
    descend(memory, root, hash, |record| record.hash() == hash && record.kind() == kind)
        .map(|block| Record::new(memory, block))
}

/// The block of a key's record.
#[inline]
pub(crate) fn find_block(
    memory: Memory,
    root: Block,
    hash: u64,
    kind: u8,
    key: &[u8],
) -> Option<Block> {
    descend(memory, root, hash, |record| record.is(hash, kind, key))
}

#[inline(always)]
fn descend(
    memory: Memory,
    root: Block,
    hash: u64,
    is_it: impl FnOnce(Record<'_>) -> bool,
) -> Option<Block> {
    let mut node = root;
    for level in 0..LEVELS {
        if node == 0 {
            return None;
        }
        arena::check_alive(memory, node);
        let bit = bit(hash, level);
        let records = memory.word(node, RECORDS).load(Relaxed);
        if records & bit != 0 {
            let place = (records & (bit - 1)).count_ones();
            let block = child(memory, node, place);
            return is_it(Record::new(memory, block)).then_some(block);
        }
        let nodes = memory.word(node, NODES).load(Relaxed);
        if nodes & bit == 0 {
            return None;
        }
        node = child(memory, node, records.count_ones() + (nodes & (bit - 1)).count_ones());
    }
    None
}

#[inline]
fn child(memory: Memory, node: Block, place: u32) -> Block {
    memory.word(node, CHILDREN + place as usize * 4).load(Relaxed)
}

/// Calls `visit` with every node and every record below `node`.
pub(crate) fn walk(memory: Memory, node: Block, visit: &mut impl FnMut(Visited)) {
    if node == 0 {
        return;
    }
    arena::check_alive(memory, node);
    visit(Visited::Node(node));
    let records = memory.word(node, RECORDS).load(Relaxed).count_ones();
    let nodes = memory.word(node, NODES).load(Relaxed).count_ones();
    (0..records).for_each(|place| visit(Visited::Record(child(memory, node, place))));
    // No deeper than LEVELS.
    (records..records + nodes).for_each(|place| walk(memory, child(memory, node, place), visit));
}

/// A block of the index.
pub(crate) enum Visited {
    Node(Block),
    Record(Block),
}

/// What differs between two indexes.
pub(crate) enum Difference {
    /// Only the first index has this record.
    Removed(Block),
    /// The second index has this record; the first lacks it or has another value.
    Written(Block),
}

/// Calls `visit` with what differs between the indexes `old` and `new`. Time in proportion to that: what they share
/// is skipped.
pub(crate) fn differences(
    memory: Memory,
    old: Block,
    new: Block,
    visit: &mut impl FnMut(Difference),
) {
    if old == new {
        return;
    }
    let [before, after] = [old, new].map(|node| match node {
        0 => Node::EMPTY,
        node => Node::read(memory, node),
    });
    for bit in (0..32).map(|n| 1 << n) {
        match (before.at(bit), after.at(bit)) {
            (was, is) if was == is => {}
            (Child::Node(was), Child::Node(is)) => differences(memory, was, is, visit),
            (was, is) => {
                // Few: at least one side is a single record or nothing.
                let [was, is] = [was, is].map(|child| records_of(memory, child));
                let is_same = |a: &Block, b: &Block| {
                    let (a, b) = (Record::new(memory, *a), Record::new(memory, *b));
                    a.is(b.hash(), b.kind(), b.key())
                };
                for record in was.iter().filter(|w| !is.iter().any(|i| is_same(w, i))) {
                    visit(Difference::Removed(*record));
                }
                for record in is.iter().filter(|i| !was.contains(i)) {
                    visit(Difference::Written(*record));
                }
            }
        }
    }
}

fn records_of(memory: Memory, child: Child) -> Vec<Block> {
    let mut records = Vec::new();
    match child {
        Child::None => {}
        Child::Record(record) => records.push(record),
        Child::Node(node) => walk(memory, node, &mut |visited| {
            if let Visited::Record(record) = visited {
                records.push(record);
            }
        }),
    }
    records
}

/// The child at one bit of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Child {
    None,
    Record(Block),
    Node(Block),
}

/// The content of a node while it is changed.
struct Node {
    records: u32,
    nodes: u32,
    children: [Block; 32],
}

impl Node {
    const EMPTY: Node = Node { records: 0, nodes: 0, children: [0; 32] };

    fn read(memory: Memory, node: Block) -> Node {
        let mut parts = Node {
            records: memory.word(node, RECORDS).load(Relaxed),
            nodes: memory.word(node, NODES).load(Relaxed),
            children: [0; 32],
        };
        for place in 0..parts.len() {
            parts.children[place] = child(memory, node, place as u32);
        }
        parts
    }

    fn len(&self) -> usize {
        (self.records.count_ones() + self.nodes.count_ones()) as usize
    }

    fn at(&self, bit: u32) -> Child {
        match () {
            () if self.records & bit != 0 => Child::Record(self.children[self.record_place(bit)]),
            () if self.nodes & bit != 0 => Child::Node(self.children[self.node_place(bit)]),
            () => Child::None,
        }
    }

    fn record_place(&self, bit: u32) -> usize {
        (self.records & (bit - 1)).count_ones() as usize
    }

    fn node_place(&self, bit: u32) -> usize {
        (self.records.count_ones() + (self.nodes & (bit - 1)).count_ones()) as usize
    }

    fn insert(&mut self, place: usize, child: Block) {
        let len = self.len();
        self.children.copy_within(place..len, place + 1);
        self.children[place] = child;
    }

    fn delete(&mut self, place: usize) {
        let len = self.len();
        self.children.copy_within(place + 1..len, place);
    }

    fn add_record(&mut self, bit: u32, record: Block) {
        self.insert(self.record_place(bit), record);
        self.records |= bit;
    }

    fn remove_record(&mut self, bit: u32) {
        self.delete(self.record_place(bit));
        self.records &= !bit;
    }

    fn add_node(&mut self, bit: u32, node: Block) {
        self.insert(self.node_place(bit), node);
        self.nodes |= bit;
    }

    fn remove_node(&mut self, bit: u32) {
        self.delete(self.node_place(bit));
        self.nodes &= !bit;
    }

    /// The record, if this is all the node holds.
    fn only_record(&self) -> Option<Block> {
        (self.nodes == 0 && self.records.count_ones() == 1).then_some(self.children[0])
    }
}

/// Changes the index of the generation under construction.
pub(crate) struct Editor<'t> {
    pub memory: Memory,
    pub generation: u64,
    /// Blocks of older generations that the new one does not use.
    pub replaced: &'t mut Vec<Block>,
}

impl Editor<'_> {
    /// Puts `record` under its hash; a record of the same key must be `replaces`. Answers the new root.
    pub(crate) fn insert(
        &mut self,
        root: Block,
        record: Block,
        replaces: Option<Block>,
    ) -> Result<Block, WriteError> {
        let hash = Record::new(self.memory, record).hash();
        self.insert_below(root, 0, hash, record, replaces)
    }

    fn insert_below(
        &mut self,
        node: Block,
        level: u32,
        hash: u64,
        record: Block,
        replaces: Option<Block>,
    ) -> Result<Block, WriteError> {
        if level == LEVELS {
            return Err(WriteError::Collision);
        }
        failpoint("update.index");
        let bit = bit(hash, level);
        if node == 0 {
            let mut new = Node::EMPTY;
            new.add_record(bit, record);
            return self.write(0, &new);
        }
        let mut parts = Node::read(self.memory, node);
        if parts.nodes & bit != 0 {
            let place = parts.node_place(bit);
            let below = parts.children[place];
            parts.children[place] = self.insert_below(below, level + 1, hash, record, replaces)?;
        } else if parts.records & bit == 0 {
            parts.add_record(bit, record);
        } else {
            let place = parts.record_place(bit);
            let other = parts.children[place];
            if Some(other) == replaces {
                parts.children[place] = record;
            } else {
                let pair = self.pair(level + 1, record, other)?;
                parts.remove_record(bit);
                parts.add_node(bit, pair);
            }
        }
        self.write(node, &parts)
    }

    /// A node for two records whose hashes agree above `level`.
    fn pair(&mut self, level: u32, one: Block, other: Block) -> Result<Block, WriteError> {
        if level == LEVELS {
            return Err(WriteError::Collision);
        }
        let [a, b] = [one, other].map(|record| bit(Record::new(self.memory, record).hash(), level));
        let mut parts = Node::EMPTY;
        if a == b {
            let below = self.pair(level + 1, one, other)?;
            parts.add_node(a, below);
        } else {
            parts.add_record(a, one);
            parts.add_record(b, other);
        }
        self.write(0, &parts)
    }

    /// Takes out the record at `hash`, which is there. Answers the new root.
    pub(crate) fn remove(&mut self, root: Block, hash: u64) -> Result<Block, WriteError> {
        match self.remove_below(root, 0, hash)? {
            Rest::Node(node) => Ok(node),
            // Only below the root is a single record lifted into its parent.
            Rest::Record(record) => {
                let mut parts = Node::EMPTY;
                parts.add_record(bit(Record::new(self.memory, record).hash(), 0), record);
                self.write(0, &parts)
            }
        }
    }

    fn remove_below(&mut self, node: Block, level: u32, hash: u64) -> Result<Rest, WriteError> {
        failpoint("update.index");
        let bit = bit(hash, level);
        let mut parts = Node::read(self.memory, node);
        if parts.records & bit != 0 {
            parts.remove_record(bit);
        } else {
            let place = parts.node_place(bit);
            match self.remove_below(parts.children[place], level + 1, hash)? {
                Rest::Node(0) => parts.remove_node(bit),
                Rest::Node(below) => parts.children[place] = below,
                Rest::Record(record) => {
                    parts.remove_node(bit);
                    parts.add_record(bit, record);
                }
            }
        }
        if let Some(record) = parts.only_record() {
            self.drop_node(node);
            return Ok(Rest::Record(record));
        }
        if parts.len() == 0 {
            self.drop_node(node);
            return Ok(Rest::Node(0));
        }
        Ok(Rest::Node(self.write(node, &parts)?))
    }

    /// Writes a node in place of `old`: over it if it is of this generation and of the same size.
    fn write(&mut self, old: Block, parts: &Node) -> Result<Block, WriteError> {
        let memory = self.memory;
        let payload = CHILDREN - HEAD + parts.len() * 4;
        let is_ours = old != 0 && memory.long(old, GENERATION).load(Relaxed) == self.generation;
        let node = if is_ours && arena::granules_of(memory, old) == arena::granules_for(payload)? {
            old
        } else {
            let new = arena::allocate(memory, payload)?;
            self.drop_node(old);
            new
        };
        memory.long(node, GENERATION).store(self.generation, Relaxed);
        memory.word(node, RECORDS).store(parts.records, Relaxed);
        memory.word(node, NODES).store(parts.nodes, Relaxed);
        for (place, child) in parts.children[..parts.len()].iter().enumerate() {
            memory.word(node, CHILDREN + place * 4).store(*child, Relaxed);
        }
        Ok(node)
    }

    fn drop_node(&mut self, node: Block) {
        if node == 0 {
            return;
        }
        if self.memory.long(node, GENERATION).load(Relaxed) == self.generation {
            arena::release(self.memory, node);
        } else {
            self.replaced.push(node);
        }
    }
}

enum Rest {
    Node(Block),
    Record(Block),
}
