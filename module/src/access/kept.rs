//! Answers of auth servers that the worker has, before nginx's cache is asked: that reads a file for each.

use oxigress_core::policy::auth::answers::{AnswerKey, Answers, KeptAnswer};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::cell::RefCell;
use std::hash::Hasher;
use std::rc::Rc;

/// The answers of a worker.
pub struct KeptAnswers {
    key: [u64; 2],
    answers: RefCell<Answers>,
}

/// One that a request was let in or refused by, in its pool.
pub struct KeptFor {
    /// The answer.
    pub answer: Rc<KeptAnswer>,
    /// Its cookies reach the client whatever the status.
    pub always_sets_cookie: bool,
}

impl KeptAnswers {
    /// `key` is random.
    pub fn new(key: [u64; 2]) -> Self {
        KeptAnswers { key, answers: RefCell::default() }
    }

    /// The name of what tells an answer apart: a keyed hash.
    pub fn key(&self, tells_apart: &[u8]) -> AnswerKey {
        let mut hasher = SipHasher13::new_with_keys(self.key[0], self.key[1]);
        hasher.write(tells_apart);
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }

    /// The answer, if there is one now.
    pub fn get(&self, key: AnswerKey) -> Option<Rc<KeptAnswer>> {
        let (now, _) = nginx::wall_clock();
        self.answers.try_borrow().ok()?.get(key, now)
    }

    /// Keeps an answer until `end`, in seconds since 1970.
    pub fn put(&self, key: AnswerKey, end: i64, answer: KeptAnswer) {
        let (now, _) = nginx::wall_clock();
        if let Ok(mut answers) = self.answers.try_borrow_mut()
            && now < end
        {
            answers.put(key, end, answer);
        }
    }
}
