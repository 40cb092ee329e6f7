//! A pattern with look-around or back-references as a program for [`super::backtrack`].
//!
//! Source:  `fancy-regex` parses the text. Its own engine is not used: it counts how often it backtracks, but not the
//!          work that it delegates in between, so a pattern of 30 bytes could take seconds.
//! Errors:  a construct that is not served is named.

mod emit;
mod tree;

use super::MAX_COMPILED_BYTES;
use super::text::scan;
use crate::text::invalid::Invalid;
use fancy_regex::Expr;
use std::fmt;
use tree::Builder;

const MAX_INSTRUCTIONS: usize = MAX_COMPILED_BYTES / size_of::<Instruction>();
/// The flag of `fancy-regex` for upper and lower case alike.
const CASE_INSENSITIVE: u32 = 1;

/// A set of bytes, one bit for each.
#[derive(Clone, PartialEq, Eq)]
pub struct Bytes([u64; 4]);

/// A place in the list of instructions.
pub type InstructionIndex = usize;

/// One step of the matcher.
#[derive(Clone, Debug)]
pub enum Instruction {
    /// Matches one byte of the set with this index.
    One(usize),
    /// Matches these bytes, optionally in any case of ASCII letters.
    Text {
        bytes: Box<[u8]>,
        ignores_case: bool,
    },
    /// Continues if the assertion holds.
    Assert(Assert),
    /// Tries the first place, then the second.
    Split(InstructionIndex, InstructionIndex),
    Jump(InstructionIndex),
    /// Stores the position in a slot.
    Save(usize),
    /// Ends the loop if its round, which began at the position in the slot, matched nothing.
    Progress {
        began: usize,
        out: InstructionIndex,
    },
    /// Matches the text that the group matched.
    Same {
        group: usize,
        ignores_case: bool,
    },
    /// Continues at the place if the group matched nothing.
    Unless {
        group: usize,
        to: InstructionIndex,
    },
    /// Checks whether the following instructions, up to [`Instruction::Done`], match here.
    Ahead {
        is_negative: bool,
        next: InstructionIndex,
    },
    /// Checks whether they match `shortest` to `longest` bytes that end here.
    Behind {
        is_negative: bool,
        shortest: usize,
        longest: usize,
        next: InstructionIndex,
    },
    /// Matches their first match, without alternatives.
    Atomic {
        next: InstructionIndex,
    },
    /// A part, or the whole, has matched.
    Done,
}

/// A condition on a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assert {
    Start,
    End,
    EndOrNewlines,
    LineStart,
    LineEnd,
    WordBoundary,
    NoWordBoundary,
    WordStart,
    WordEnd,
    WordStartHalf,
    WordEndHalf,
}

/// A pattern that can be run.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub instructions: Vec<Instruction>,
    pub sets: Vec<Bytes>,
    /// Two for each group, counting the whole match, and one for each loop.
    pub slots: usize,
    /// The number of groups, counting the whole match.
    pub groups: usize,
    /// Parts that were written out.
    visits: usize,
}

impl Bytes {
    fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut words = [0; 4];
        for byte in bytes {
            if let Some(word) = words.get_mut(usize::from(byte >> 6)) {
                *word |= 1 << (byte & 63);
            }
        }
        Bytes(words)
    }

    /// Whether the byte is in the set.
    pub fn has(&self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 6)).is_some_and(|word| word >> (byte & 63) & 1 == 1)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries((0..=255).filter(|byte| self.has(*byte))).finish()
    }
}

impl Program {
    /// The program of a pattern.
    pub fn new(pattern: &str, ignores_case: bool) -> Result<Self, NoProgram> {
        if let Some(escape) = other_escape(pattern) {
            return Err(NoProgram::not_served(&format!("\\{escape}, of another meaning in PCRE")));
        }
        let flags = if ignores_case { CASE_INSENSITIVE } else { 0 };
        // Without this, flags would continue after the group that contains them.
        let text = scan(pattern).text;
        let tree = Expr::parse_tree_with_flags(&text, flags)
            .map_err(|error| NoProgram::Unread(error.to_string()))?;
        let mut builder = Builder::default();
        let node = builder.node(&tree.expr)?;
        if let Some(group) = builder.highest_reference
            && group > builder.groups
        {
            return Err(NoProgram::refused(format!(
                "pattern names group {group} and has {}: name one that it has",
                builder.groups
            )));
        }
        let mut program = Program { groups: builder.groups + 1, ..Program::default() };
        program.sets = builder.sets;
        program.slots = 2 * program.groups;
        program.emit(&node)?;
        program.put(Instruction::Done)?;
        Ok(program)
    }

    /// The memory of the program, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = self.instructions.iter().map(|instruction| match instruction {
            Instruction::Text { bytes, .. } => bytes.len(),
            _ => 0,
        });
        size_of_val(&*self.instructions) + size_of_val(&*self.sets) + texts.sum::<usize>()
    }
}

/// An escape that `fancy-regex` reads differently from PCRE.
fn other_escape(pattern: &str) -> Option<char> {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '\\'
            && let Some(escaped) = chars.next()
            && "hHOuU<>".contains(escaped)
        {
            return Some(escaped);
        }
    }
    None
}

/// Why there is no program.
#[derive(Debug)]
pub enum NoProgram {
    /// It is no pattern, with the reason.
    Unread(String),
    Refused(Invalid),
}

impl NoProgram {
    fn refused(why: impl Into<String>) -> Self {
        NoProgram::Refused(Invalid::new(why))
    }

    fn not_served(what: &str) -> Self {
        Self::refused(format!("pattern has {what}, which is not served: write it without"))
    }
}

fn too_large() -> NoProgram {
    NoProgram::refused("pattern is too large when compiled: repeat less often")
}
