//! Runs a [`Program`]: patterns with look-around and back-references, step by step.
//!
//! Units:   one step is an instruction, a byte of a text or of a group, or an entry of the list of choices.
//! Errors:  no answer after as many steps as the caller allows; nothing else grows, for each step adds one entry at most.

use super::NoAnswer;
use super::program::{Assert, Instruction, InstructionIndex, Program};

/// What a choice left behind.
enum Choice {
    /// Another place to go on from.
    Branch { place: InstructionIndex, at: usize },
    /// The earlier content of a slot.
    Slot { slot: usize, was: Option<usize> },
}

/// Memory that the matcher uses, for any number of programs one after the other.
#[derive(Default)]
pub struct Memory {
    slots: Vec<Option<usize>>,
    choices: Vec<Choice>,
}

impl Memory {
    /// The number of choices whose memory is kept between runs.
    const KEPT: usize = 4_096;

    /// Where `group` was found last.
    pub fn group(&self, group: usize) -> Option<(usize, usize)> {
        let slot = |slot: usize| self.slots.get(slot).copied().flatten();
        Some((slot(2 * group)?, slot(2 * group + 1)?))
    }
}

/// Searches a value for a match, from its beginning or from anywhere, and deducts the steps from `steps`.
pub fn find(
    program: &Program,
    value: &[u8],
    is_anchored: bool,
    memory: &mut Memory,
    steps: &mut u64,
) -> Result<bool, NoAnswer> {
    let mut run = Run { program, value, memory, steps };
    let found = run.find(is_anchored);
    memory.choices.clear();
    memory.choices.shrink_to(Memory::KEPT);
    found
}

struct Run<'r> {
    program: &'r Program,
    value: &'r [u8],
    memory: &'r mut Memory,
    steps: &'r mut u64,
}

impl Run<'_> {
    fn find(&mut self, is_anchored: bool) -> Result<bool, NoAnswer> {
        let last = if is_anchored { 0 } else { self.value.len() };
        for start in 0..=last {
            self.memory.choices.clear();
            self.memory.slots.clear();
            self.memory.slots.resize(self.program.slots, None);
            self.spend(self.program.slots as u64 / 8)?;
            if let Some(end) = self.run(0, start)? {
                self.save(0, start);
                self.save(1, end);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn spend(&mut self, steps: u64) -> Result<(), NoAnswer> {
        *self.steps = self.steps.checked_sub(steps).ok_or(NoAnswer)?;
        Ok(())
    }

    /// Where the program ends that begins at `place`, if it holds at `at`. The choices that it left stay.
    fn run(
        &mut self,
        mut place: InstructionIndex,
        mut at: usize,
    ) -> Result<Option<usize>, NoAnswer> {
        let base = self.memory.choices.len();
        loop {
            self.spend(1)?;
            let program = self.program;
            let Some(instruction) = program.instructions.get(place) else { return Err(NoAnswer) };
            let next = match instruction {
                Instruction::Done => return Ok(Some(at)),
                Instruction::Split(first, second) => {
                    self.memory.choices.push(Choice::Branch { place: *second, at });
                    Some((*first, at))
                }
                Instruction::Jump(to) => Some((*to, at)),
                Instruction::Save(slot) => {
                    self.save(*slot, at);
                    Some((place + 1, at))
                }
                Instruction::Progress { began, out } => {
                    let took_nothing = self.memory.slots.get(*began).copied().flatten() == Some(at);
                    Some((if took_nothing { *out } else { place + 1 }, at))
                }
                Instruction::Unless { group, to } => {
                    let is_there = self.memory.group(*group).is_some();
                    Some((if is_there { place + 1 } else { *to }, at))
                }
                Instruction::Ahead { is_negative, next } => {
                    let holds = self.look(place + 1, at, None, *is_negative)?;
                    (holds != *is_negative).then_some((*next, at))
                }
                Instruction::Behind { is_negative, shortest, longest, next } => {
                    let holds =
                        self.look_behind(place + 1, at, (*shortest, *longest), *is_negative)?;
                    (holds != *is_negative).then_some((*next, at))
                }
                Instruction::Atomic { next } => {
                    let base = self.memory.choices.len();
                    let end = self.run(place + 1, at)?;
                    self.forget_branches(base)?;
                    end.map(|end| (*next, end))
                }
                one => self.take(one, at)?.map(|at| (place + 1, at)),
            };
            match next.map_or_else(|| self.back(base), |next| Ok(Some(next)))? {
                Some(next) => (place, at) = next,
                None => return Ok(None),
            }
        }
    }

    /// The position after the bytes that an instruction matches at `at`.
    fn take(&mut self, instruction: &Instruction, at: usize) -> Result<Option<usize>, NoAnswer> {
        let rest = self.value.get(at..).unwrap_or_default();
        let begins = |text: &[u8], ignores_case: bool| {
            let head = rest.get(..text.len());
            head.is_some_and(|head| {
                if ignores_case { head.eq_ignore_ascii_case(text) } else { head == text }
            })
        };
        Ok(match instruction {
            Instruction::One(set) => {
                let set = self.program.sets.get(*set);
                let byte = rest.first();
                set.zip(byte).is_some_and(|(set, byte)| set.has(*byte)).then_some(at + 1)
            }
            Instruction::Text { bytes, ignores_case } => {
                self.spend(bytes.len() as u64 / 8)?;
                begins(bytes, *ignores_case).then_some(at + bytes.len())
            }
            Instruction::Same { group, ignores_case } => {
                let Some((start, end)) = self.memory.group(*group) else { return Ok(None) };
                let text = self.value.get(start..end).unwrap_or_default();
                self.spend(text.len() as u64 / 8)?;
                begins(text, *ignores_case).then_some(at + text.len())
            }
            Instruction::Assert(assert) => assert.holds(self.value, at).then_some(at),
            _ => None,
        })
    }

    /// Whether the part at `place` holds at `at`, up to `end` if there is one. What it saved stays where it shall hold.
    fn look(
        &mut self,
        place: InstructionIndex,
        at: usize,
        end: Option<usize>,
        is_negative: bool,
    ) -> Result<bool, NoAnswer> {
        let base = self.memory.choices.len();
        let mut found = self.run(place, at)?;
        while found.is_some() && end.is_some() && found != end {
            // Another way through the part may end there.
            found = match self.back(base)? {
                Some((place, at)) => self.run_on(base, place, at)?,
                None => None,
            };
        }
        match found.is_some() && !is_negative {
            true => self.forget_branches(base)?,
            false => self.undo(base)?,
        }
        Ok(found.is_some())
    }

    /// As [`Self::run`], with the choices from `base` on as its own.
    fn run_on(
        &mut self,
        base: usize,
        place: InstructionIndex,
        at: usize,
    ) -> Result<Option<usize>, NoAnswer> {
        let mut found = self.run(place, at)?;
        while found.is_none() {
            let Some((place, at)) = self.back(base)? else { return Ok(None) };
            found = self.run(place, at)?;
        }
        Ok(found)
    }

    fn look_behind(
        &mut self,
        place: InstructionIndex,
        at: usize,
        (shortest, longest): (usize, usize),
        is_negative: bool,
    ) -> Result<bool, NoAnswer> {
        let Some(nearest) = at.checked_sub(shortest) else { return Ok(false) };
        let farthest = at.saturating_sub(longest);
        for start in (farthest..=nearest).rev() {
            if self.look(place, start, Some(at), is_negative)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn save(&mut self, slot: usize, at: usize) {
        if let Some(content) = self.memory.slots.get_mut(slot) {
            self.memory.choices.push(Choice::Slot { slot, was: *content });
            *content = Some(at);
        }
    }

    /// Goes back to the last branch above `base`.
    fn back(&mut self, base: usize) -> Result<Option<(InstructionIndex, usize)>, NoAnswer> {
        while self.memory.choices.len() > base {
            self.spend(1)?;
            match self.memory.choices.pop() {
                Some(Choice::Branch { place, at }) => return Ok(Some((place, at))),
                Some(Choice::Slot { slot, was }) => self.restore(slot, was),
                None => break,
            }
        }
        Ok(None)
    }

    fn restore(&mut self, slot: usize, was: Option<usize>) {
        if let Some(content) = self.memory.slots.get_mut(slot) {
            *content = was;
        }
    }

    /// Takes back all that was done since `base`.
    fn undo(&mut self, base: usize) -> Result<(), NoAnswer> {
        while self.back(base)?.is_some() {}
        Ok(())
    }

    /// Keeps what was saved since `base`, without the other ways to go.
    fn forget_branches(&mut self, base: usize) -> Result<(), NoAnswer> {
        self.spend(self.memory.choices.len().saturating_sub(base) as u64)?;
        let choices = &mut self.memory.choices;
        let mut kept = base;
        for index in base..choices.len() {
            if matches!(choices.get(index), Some(Choice::Slot { .. })) {
                choices.swap(index, kept);
                kept += 1;
            }
        }
        choices.truncate(kept);
        Ok(())
    }
}

impl Assert {
    fn holds(self, value: &[u8], at: usize) -> bool {
        let is_word =
            |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let before = at.checked_sub(1).and_then(|before| value.get(before));
        let after = value.get(at);
        let (was, is) = (is_word(before), is_word(after));
        match self {
            Assert::Start => at == 0,
            Assert::End => after.is_none(),
            Assert::EndOrNewlines => {
                // One, as in PCRE.
                matches!(value.get(at..), Some(b"" | b"\n"))
            }
            Assert::LineStart => before.is_none_or(|byte| *byte == b'\n'),
            Assert::LineEnd => after.is_none_or(|byte| *byte == b'\n'),
            Assert::WordBoundary => was != is,
            Assert::NoWordBoundary => was == is,
            Assert::WordStart => !was && is,
            Assert::WordEnd => was && !is,
            Assert::WordStartHalf => !was,
            Assert::WordEndHalf => !is,
        }
    }
}
