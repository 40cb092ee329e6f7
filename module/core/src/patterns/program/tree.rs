//! The syntax tree of a pattern, with its groups numbered and its classes read.

use super::{Assert, Bytes, NoProgram};
use fancy_regex::{Assertion, Expr, LookAround};
use regex_syntax::hir::{Class, HirKind};

/// A part of a pattern, with its groups numbered and its classes read.
pub(super) enum Node {
    Empty,
    One(usize),
    Text { bytes: Box<[u8]>, ignores_case: bool },
    Assert(Assert),
    All(Vec<Node>),
    Any(Vec<Node>),
    Group(usize, Box<Node>),
    Look { is_negative: bool, is_behind: bool, node: Box<Node> },
    Repeat { node: Box<Node>, least: usize, most: Option<usize>, is_greedy: bool },
    Same { group: usize, ignores_case: bool },
    IfGroup { group: usize, then: Box<Node>, otherwise: Box<Node> },
    Atomic(Box<Node>),
}

impl Node {
    /// The least and the most bytes that a match has; no most if there is no bound.
    pub(super) fn width(&self) -> (usize, Option<usize>) {
        let sum = |all: &[Node]| {
            all.iter().map(Node::width).fold((0_usize, Some(0_usize)), |(low, high), one| {
                let high = high.zip(one.1).and_then(|(a, b)| a.checked_add(b));
                (low.saturating_add(one.0), high)
            })
        };
        let widest = |a: (usize, Option<usize>), b: (usize, Option<usize>)| {
            (a.0.min(b.0), a.1.zip(b.1).map(|(a, b)| a.max(b)))
        };
        match self {
            Node::Empty | Node::Assert(_) | Node::Look { .. } => (0, Some(0)),
            Node::One(_) => (1, Some(1)),
            Node::Text { bytes, .. } => (bytes.len(), Some(bytes.len())),
            Node::All(all) => sum(all),
            Node::Any(all) => all.iter().map(Node::width).reduce(widest).unwrap_or_default(),
            Node::Group(_, node) | Node::Atomic(node) => node.width(),
            Node::Repeat { node, least, most, .. } => {
                let (low, high) = node.width();
                let high = if high == Some(0) {
                    Some(0)
                } else {
                    high.zip(*most).and_then(|(a, b)| a.checked_mul(b))
                };
                (low.saturating_mul(*least), high)
            }
            Node::Same { .. } => (0, None),
            Node::IfGroup { then, otherwise, .. } => widest(then.width(), otherwise.width()),
        }
    }
}

#[derive(Default)]
pub(super) struct Builder {
    pub(super) sets: Vec<Bytes>,
    /// The groups that contain the current part.
    open: Vec<usize>,
    pub(super) groups: usize,
    pub(super) highest_reference: Option<usize>,
}

impl Builder {
    pub(super) fn node(&mut self, expr: &Expr) -> Result<Node, NoProgram> {
        Ok(match expr {
            Expr::Empty => Node::Empty,
            Expr::Any { newline: true, .. } => self.set(0..=255),
            Expr::Any { newline: false, crlf: false } => {
                self.set((0..=255).filter(|b| *b != b'\n'))
            }
            Expr::Any { .. } => self.set((0..=255).filter(|b| !b"\r\n".contains(b))),
            Expr::Assertion(assertion) => Node::Assert(assert(assertion)?),
            Expr::GeneralNewline { .. } => Node::Atomic(Box::new(Node::Any(vec![
                Node::Text { bytes: Box::from(*b"\r\n"), ignores_case: false },
                self.set((b'\n'..=b'\r').chain([0x85])),
            ]))),
            Expr::Literal { val, casei } => {
                Node::Text { bytes: val.as_bytes().into(), ignores_case: *casei }
            }
            Expr::LiteralBytes { bytes } => {
                Node::Text { bytes: bytes.as_slice().into(), ignores_case: false }
            }
            Expr::Concat(all) => Node::All(self.nodes(all)?),
            Expr::Alt(all) => Node::Any(self.nodes(all)?),
            Expr::Group(inner) => {
                self.groups += 1;
                let number = self.groups;
                self.open.push(number);
                let inner = self.node(inner);
                self.open.pop();
                Node::Group(number, Box::new(inner?))
            }
            Expr::LookAround(inner, look) => {
                use LookAround::{LookAhead, LookAheadNeg, LookBehind, LookBehindNeg};
                Node::Look {
                    is_negative: matches!(look, LookAheadNeg | LookBehindNeg),
                    is_behind: match look {
                        LookAhead | LookAheadNeg => false,
                        LookBehind | LookBehindNeg => true,
                    },
                    node: Box::new(self.node(inner)?),
                }
            }
            Expr::Repeat { lo, hi, .. } if lo > hi => {
                return Err(NoProgram::refused(
                    "pattern repeats from more to less times: swap them",
                ));
            }
            Expr::Repeat { child, lo, hi, greedy } => Node::Repeat {
                node: Box::new(self.node(child)?),
                least: *lo,
                most: (*hi != usize::MAX).then_some(*hi),
                is_greedy: *greedy,
            },
            Expr::Delegate { inner, casei } => self.class(inner, *casei)?,
            Expr::Backref { group, casei } => {
                Node::Same { group: self.reference(*group)?, ignores_case: *casei }
            }
            Expr::AtomicGroup(inner) => Node::Atomic(Box::new(self.node(inner)?)),
            Expr::Conditional { condition, true_branch, false_branch } => match &**condition {
                Expr::BackrefExistsCondition { group, relative_recursion_level: None } => {
                    let group = self.reference(*group)?;
                    let then = Box::new(self.node(true_branch)?);
                    Node::IfGroup { group, then, otherwise: Box::new(self.node(false_branch)?) }
                }
                _ => return Err(NoProgram::not_served("a condition that is no group")),
            },
            other => return Err(NoProgram::not_served(unsupported(other))),
        })
    }

    fn nodes(&mut self, all: &[Expr]) -> Result<Vec<Node>, NoProgram> {
        all.iter().map(|one| self.node(one)).collect()
    }

    fn set(&mut self, bytes: impl IntoIterator<Item = u8>) -> Node {
        let set = Bytes::of(bytes);
        let known = self.sets.iter().position(|known| *known == set);
        Node::One(known.unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        }))
    }

    fn reference(&mut self, group: usize) -> Result<usize, NoProgram> {
        if group == 0 || self.open.contains(&group) {
            return Err(NoProgram::not_served("a reference to a group within itself"));
        }
        self.highest_reference = self.highest_reference.max(Some(group));
        Ok(group)
    }

    /// A class of bytes, which `regex-syntax` reads.
    fn class(&mut self, text: &str, ignores_case: bool) -> Result<Node, NoProgram> {
        let mut parser = regex_syntax::ParserBuilder::new();
        let parser = parser.unicode(false).utf8(false).case_insensitive(ignores_case);
        let beyond =
            || NoProgram::not_served("a class of characters beyond ASCII beside look-around");
        let hir = parser.build().parse(text).map_err(|_| beyond())?;
        match hir.kind() {
            HirKind::Class(Class::Bytes(class)) => {
                Ok(self.set(class.iter().flat_map(|range| range.start()..=range.end())))
            }
            HirKind::Literal(literal) if literal.0.len() == 1 => {
                Ok(self.set(literal.0.iter().copied()))
            }
            _ => Err(beyond()),
        }
    }
}

fn assert(assertion: &Assertion) -> Result<Assert, NoProgram> {
    Ok(match assertion {
        Assertion::StartText => Assert::Start,
        Assertion::EndText => Assert::End,
        Assertion::EndTextIgnoreTrailingNewlines { crlf: false } => Assert::EndOrNewlines,
        Assertion::StartLine { crlf: false } => Assert::LineStart,
        Assertion::EndLine { crlf: false } => Assert::LineEnd,
        Assertion::WordBoundary => Assert::WordBoundary,
        Assertion::NotWordBoundary => Assert::NoWordBoundary,
        Assertion::LeftWordBoundary => Assert::WordStart,
        Assertion::RightWordBoundary => Assert::WordEnd,
        Assertion::LeftWordHalfBoundary => Assert::WordStartHalf,
        Assertion::RightWordHalfBoundary => Assert::WordEndHalf,
        Assertion::EndTextIgnoreTrailingNewlines { crlf: true }
        | Assertion::StartLine { crlf: true }
        | Assertion::StartLineOniguruma { .. }
        | Assertion::EndLine { crlf: true } => return Err(NoProgram::not_served("the flag R")),
    })
}

/// The name of a construct that has no node.
fn unsupported(expr: &Expr) -> &'static str {
    match expr {
        Expr::KeepOut => "\\K",
        Expr::ContinueFromPreviousMatchEnd => "\\G",
        Expr::SubroutineCall(_) | Expr::DefineGroup { .. } => "a call of a group",
        Expr::BackrefWithRelativeRecursionLevel { .. } | Expr::BackrefExistsCondition { .. } => {
            "a reference to a level of recursion"
        }
        Expr::BacktrackingControlVerb(_) => "a verb such as (*FAIL)",
        Expr::Absent(_) => "an absence operator (?~)",
        Expr::AstNode(..) => "a reference to no group",
        _ => "a construct of another engine",
    }
}
