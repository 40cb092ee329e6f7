//! What the controller loop has to tell the writer of status and Events, and where it waits.

use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::published::{ObjectStatus, Published};
use oxigress_objects::verdict::VerdictChanges;
use oxigress_objects::verdict::acceptance::Acceptance;
use oxigress_objects::{Key, ObjectRef};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// What the controller loop has to tell.
#[derive(Debug, Default)]
pub struct Update {
    /// Ingresses as they stand at the API server; none: gone.
    pub published: BTreeMap<Key, Option<Published>>,
    /// What they are to this controller; none: nothing.
    pub acceptances: BTreeMap<Key, Option<Acceptance>>,
    /// The status of objects of the Gateway API as it stands; none: they are gone.
    pub statuses: BTreeMap<ObjectRef, Option<ObjectStatus>>,
    /// What it is to say; none: nothing any more.
    pub wanted: BTreeMap<ObjectRef, Option<Wanted>>,
    /// The verdicts that changed since the last update.
    pub verdicts: VerdictChanges,
    /// Objects that came, changed or went.
    pub changed: BTreeMap<ObjectRef, Change>,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was there when this program started.
    Found,
    /// The object came or changed.
    Taken,
    /// The object is gone.
    Gone,
}

impl Update {
    /// Adds a later update, whose word counts where both speak of one object.
    fn merge(&mut self, news: Update) {
        self.published.extend(news.published);
        self.acceptances.extend(news.acceptances);
        self.statuses.extend(news.statuses);
        self.wanted.extend(news.wanted);
        self.verdicts.extend(news.verdicts);
        self.changed.extend(news.changed);
    }

    fn is_empty(&self) -> bool {
        let Update { published, acceptances, statuses, wanted, verdicts, changed } = self;
        statuses.is_empty()
            && wanted.is_empty()
            && published.is_empty()
            && acceptances.is_empty()
            && verdicts.is_empty()
            && changed.is_empty()
    }
}

/// The updates that wait for the task, merged.
#[derive(Default)]
pub struct Mailbox {
    news: Mutex<Update>,
    bell: Notify,
}

impl Mailbox {
    /// Leaves the update for the task; it never waits.
    pub fn post(&self, news: Update) {
        if !news.is_empty() {
            self.news.lock().unwrap_or_else(PoisonError::into_inner).merge(news);
            self.bell.notify_one();
        }
    }

    /// All that waits; waits for something.
    pub async fn take(&self) -> Update {
        loop {
            let news = {
                let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *news)
            };
            if !news.is_empty() {
                return news;
            }
            self.bell.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn news_of_one_object_replace_each_other() {
        let mailbox = Mailbox::default();
        let key = Key::new("shop", "a");
        for version in 0..100 {
            let version = version.to_string();
            let published = Published { uid: "u".into(), version, addresses: Vec::new() };
            let published = [(key.clone(), Some(published))].into();
            mailbox.post(Update { published, ..Update::default() });
        }
        let news = mailbox.take().await;
        assert_eq!(news.published.len(), 1);
        assert_eq!(news.published[&key].as_ref().unwrap().version, "99");
        let nothing = timeout(Duration::from_millis(1), mailbox.take()).await;
        assert!(nothing.is_err());
    }
}
