//! Answers of auth servers that a worker keeps, so that a request with the same key has nobody asked.
//!
//! Shape:   by a keyed hash of what tells answers apart; the oldest go first when there are too many.
//! Units:   ends in seconds since 1970; sizes in bytes.
//! Errors:  an answer that is too large, or that varies by other headers of the request, is not kept.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Most answers of a worker.
const MAX_ANSWERS: usize = 10_000;
/// Most bytes of headers in all of them.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// What a header takes beside its text.
const HEADER_BYTES: usize = 64;
/// Most bytes of headers in one of them.
const MAX_ANSWER_BYTES: usize = 4 * 1024;

/// The name and the value of a header.
type Header = (Box<[u8]>, Box<[u8]>);

/// What tells an answer apart: a keyed hash of 16 bytes.
pub type AnswerKey = [u64; 2];

/// What an auth server has answered.
#[derive(Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    status: u16,
    headers: Vec<Header>,
    bytes: usize,
}

impl KeptAnswer {
    /// The answer of this status with these headers; `None`: it is not to be kept.
    pub fn new<'h>(
        status: u16,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Option<Self> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        for (name, value) in headers {
            bytes += name.len() + value.len() + HEADER_BYTES;
            if bytes > MAX_ANSWER_BYTES || name.eq_ignore_ascii_case(b"vary") {
                return None;
            }
            all.push((name.into(), value.into()));
        }
        Some(KeptAnswer { status, headers: all, bytes })
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Names and values, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.headers.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// The answers that are kept.
#[derive(Debug, Default)]
pub struct Answers {
    by_key: HashMap<AnswerKey, (i64, Rc<KeptAnswer>)>,
    /// Each key once, the oldest first.
    order: VecDeque<AnswerKey>,
    bytes: usize,
}

impl Answers {
    /// The answer that is kept under a key, before its end.
    pub fn get(&self, key: AnswerKey, now: i64) -> Option<Rc<KeptAnswer>> {
        self.by_key.get(&key).filter(|(end, _)| now < *end).map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer until `end`, in place of one that the key had.
    pub fn put(&mut self, key: AnswerKey, end: i64, answer: KeptAnswer) {
        self.bytes += answer.bytes;
        match self.by_key.insert(key, (end, Rc::new(answer))) {
            Some((_, old)) => self.bytes -= old.bytes,
            None => self.order.push_back(key),
        }
        while self.order.len() > MAX_ANSWERS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            let gone = self.by_key.remove(&oldest);
            self.bytes -= gone.map_or(0, |(_, gone)| gone.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, bytes: usize) -> KeptAnswer {
        let value = vec![b'x'; bytes - HEADER_BYTES];
        KeptAnswer::new(status, [(&b""[..], &value[..])].into_iter()).expect("it is small")
    }

    #[test]
    fn an_answer_is_kept_until_its_end_and_replaced_by_the_next() {
        let mut answers = Answers::default();
        answers.put([1, 0], 100, answer(200, 65));
        assert_eq!(answers.get([1, 0], 99).map(|it| it.status()), Some(200));
        assert_eq!(answers.get([1, 0], 100), None);
        assert_eq!(answers.get([2, 0], 0), None);
        answers.put([1, 0], 200, answer(401, 67));
        assert_eq!(answers.get([1, 0], 100).map(|it| it.status()), Some(401));
        assert_eq!((answers.order.len(), answers.bytes), (1, 67));
    }

    #[test]
    fn what_is_large_or_varies_is_not_kept() {
        let many = std::iter::repeat_n((&b"a"[..], &b""[..]), MAX_ANSWER_BYTES / HEADER_BYTES);
        assert_eq!(KeptAnswer::new(200, many), None);
        let large = vec![b'x'; MAX_ANSWER_BYTES];
        for headers in [[(&b"a"[..], &large[..])], [(b"Vary", b"Cookie")]] {
            assert_eq!(KeptAnswer::new(200, headers.into_iter()), None);
        }
        let kept = KeptAnswer::new(200, [(&b"A"[..], &b"b"[..])].into_iter()).unwrap();
        assert_eq!(kept.headers().collect::<Vec<_>>(), [(&b"A"[..], &b"b"[..])]);
    }

    #[test]
    fn many_answers_take_so_much_memory_and_no_more() {
        for bytes in [HEADER_BYTES, MAX_ANSWER_BYTES] {
            let mut answers = Answers::default();
            for key in 0..2 * MAX_ANSWERS as u64 {
                answers.put([0, key], 1, answer(200, bytes));
            }
            let most = MAX_ANSWERS.min(MAX_BYTES.checked_div(bytes).unwrap_or(usize::MAX));
            assert_eq!((answers.order.len(), answers.by_key.len()), (most, most));
            assert_eq!(answers.bytes, most * bytes);
            assert!(answers.get([0, 2 * MAX_ANSWERS as u64 - 1], 0).is_some(), "the newest stays");
            assert_eq!(answers.get([0, 0], 0), None);
        }
    }
}
