//! What DNS says of the names that Services and URLs stand for.

use super::Controller;
use oxigress_objects::Changed;
use oxigress_provider::dns::Report;
use tokio::time::Instant;

impl Controller {
    pub(super) fn take_reports(&mut self, reports: Vec<Report>) {
        // A report may have been under way when its name was no longer wanted.
        for (name, answer) in reports {
            if self.external_names.contains_key(&name) {
                self.answers.put(name, answer);
            }
        }
        self.take_dns_answers();
    }

    /// Takes over the answers that do not wait for their namespaces' shares of time.
    pub(super) fn take_dns_answers(&mut self) {
        let mut changed = Changed::default();
        let now = Instant::now().into_std();
        let users = |name: &_| self.translator.users_of(name);
        for (name, answer) in self.answers.due(&self.pace, users, now) {
            self.world.answer(name, answer, &mut changed);
        }
        if !changed.is_empty() {
            self.update(&changed);
        }
        if self.dns_answers_by.is_some() && !self.lacks_dns_answers() {
            self.dns_answers_by = None;
        }
    }

    pub(super) fn lacks_dns_answers(&self) -> bool {
        self.external_names.keys().any(|name| self.world.answer_for(name).is_none())
    }
}
