//! The instructions of a syntax tree.

use super::tree::Node;
use super::{Instruction, InstructionIndex, MAX_INSTRUCTIONS, NoProgram, Program, too_large};

/// The most parts of a pattern, repetitions included, that are emitted.
const MAX_VISITS: usize = 4 * MAX_INSTRUCTIONS;

impl Program {
    pub(super) fn put(&mut self, instruction: Instruction) -> Result<InstructionIndex, NoProgram> {
        if self.instructions.len() >= MAX_INSTRUCTIONS {
            return Err(too_large());
        }
        self.instructions.push(instruction);
        Ok(self.instructions.len() - 1)
    }

    /// Where the next instruction comes.
    fn here(&self) -> InstructionIndex {
        self.instructions.len()
    }

    fn set(&mut self, place: InstructionIndex, instruction: Instruction) {
        if let Some(at) = self.instructions.get_mut(place) {
            *at = instruction;
        }
    }

    pub(super) fn emit(&mut self, node: &Node) -> Result<(), NoProgram> {
        self.visits += 1;
        // What becomes no instruction may be repeated as often as one likes.
        if self.visits > MAX_VISITS {
            return Err(too_large());
        }
        match node {
            Node::Empty => {}
            Node::One(set) => drop(self.put(Instruction::One(*set))?),
            Node::Text { bytes, ignores_case } => {
                let (bytes, ignores_case) = (bytes.clone(), *ignores_case);
                self.put(Instruction::Text { bytes, ignores_case })?;
            }
            Node::Assert(assert) => drop(self.put(Instruction::Assert(*assert))?),
            Node::All(all) => all.iter().try_for_each(|one| self.emit(one))?,
            Node::Any(all) => self.emit_any(all)?,
            Node::Group(number, inner) => {
                self.put(Instruction::Save(2 * number))?;
                self.emit(inner)?;
                self.put(Instruction::Save(2 * number + 1))?;
            }
            Node::Look { is_negative, is_behind, node } => {
                self.emit_look(*is_negative, *is_behind, node)?;
            }
            Node::Repeat { node, least, most, is_greedy } => {
                for _ in 0..*least {
                    self.emit(node)?;
                }
                match most {
                    None => self.emit_loop(node, *is_greedy)?,
                    Some(most) => {
                        self.emit_optional(node, most.saturating_sub(*least), *is_greedy)?;
                    }
                }
            }
            Node::Same { group, ignores_case } => {
                self.put(Instruction::Same { group: *group, ignores_case: *ignores_case })?;
            }
            Node::IfGroup { group, then, otherwise } => {
                let branch = self.put(Instruction::Done)?;
                self.emit(then)?;
                let leave = self.put(Instruction::Done)?;
                self.set(branch, Instruction::Unless { group: *group, to: self.here() });
                self.emit(otherwise)?;
                self.set(leave, Instruction::Jump(self.here()));
            }
            Node::Atomic(inner) => {
                let begin = self.put(Instruction::Done)?;
                self.emit(inner)?;
                self.put(Instruction::Done)?;
                self.set(begin, Instruction::Atomic { next: self.here() });
            }
        }
        Ok(())
    }

    fn emit_any(&mut self, all: &[Node]) -> Result<(), NoProgram> {
        let mut leaving = Vec::new();
        for (index, one) in all.iter().enumerate() {
            if index + 1 == all.len() {
                self.emit(one)?;
                break;
            }
            let split = self.put(Instruction::Done)?;
            self.emit(one)?;
            leaving.push(self.put(Instruction::Done)?);
            self.set(split, Instruction::Split(split + 1, self.here()));
        }
        for place in leaving {
            self.set(place, Instruction::Jump(self.here()));
        }
        Ok(())
    }

    fn emit_look(
        &mut self,
        is_negative: bool,
        is_behind: bool,
        node: &Node,
    ) -> Result<(), NoProgram> {
        let begin = self.put(Instruction::Done)?;
        self.emit(node)?;
        self.put(Instruction::Done)?;
        let next = self.here();
        let (shortest, longest) = node.width();
        let look = match is_behind {
            false => Instruction::Ahead { is_negative, next },
            true => {
                let longest = longest.unwrap_or(usize::MAX);
                Instruction::Behind { is_negative, shortest, longest, next }
            }
        };
        self.set(begin, look);
        Ok(())
    }

    fn emit_loop(&mut self, node: &Node, is_greedy: bool) -> Result<(), NoProgram> {
        let split = self.put(Instruction::Done)?;
        let out = if node.width().0 > 0 {
            self.emit(node)?;
            self.put(Instruction::Jump(split))? + 1
        } else {
            let began = self.slots;
            self.slots += 1;
            self.put(Instruction::Save(began))?;
            self.emit(node)?;
            let progress = self.put(Instruction::Done)?;
            let out = self.put(Instruction::Jump(split))? + 1;
            self.set(progress, Instruction::Progress { began, out });
            out
        };
        self.set(split, Self::branch(is_greedy, split + 1, out));
        Ok(())
    }

    fn emit_optional(
        &mut self,
        node: &Node,
        times: usize,
        is_greedy: bool,
    ) -> Result<(), NoProgram> {
        let mut splits = Vec::new();
        for _ in 0..times {
            splits.push(self.put(Instruction::Done)?);
            self.emit(node)?;
        }
        let out = self.here();
        for split in splits {
            self.set(split, Self::branch(is_greedy, split + 1, out));
        }
        Ok(())
    }

    fn branch(is_greedy: bool, body: InstructionIndex, out: InstructionIndex) -> Instruction {
        if is_greedy { Instruction::Split(body, out) } else { Instruction::Split(out, body) }
    }
}
