//! What a host's paths have of its server-snippet.

use super::Merge;
use crate::annotation::ServerSnippet;
use crate::host::owner::Owner;
use oxigress_core::model::policy::Policies;
use oxigress_objects::Key;
use oxigress_objects::verdict::Note;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The server-snippet of the oldest Ingress of the host's owner that has one.
pub(super) struct OfServer<'a> {
    snippet: Option<(&'a Key, Arc<ServerSnippet>)>,
    /// By address, as rules share their policies.
    known: BTreeMap<*const Policies, (Arc<Policies>, Arc<Policies>)>,
}

impl<'a> OfServer<'a> {
    pub fn new(owner: &Owner<'a>) -> Self {
        let mut all = owner.settings();
        let snippet = all.find_map(|(by, settings)| Some((&by.key, settings.server.clone()?)));
        OfServer { snippet, known: BTreeMap::new() }
    }

    /// The policies of a path with what it inherits.
    pub fn inherited(&mut self, own: &Arc<Policies>) -> Arc<Policies> {
        let Some((_, snippet)) = &self.snippet else { return own.clone() };
        let known = self.known.entry(Arc::as_ptr(own));
        // The own ones stay, so that no others get their address.
        let (_, inherited) =
            known.or_insert_with(|| (own.clone(), Arc::new(snippet.inherited_by(own))));
        inherited.clone()
    }
}

impl<'a> Merge<'a> {
    /// Takes the records of the server over, and says to younger Ingresses that theirs have no effect.
    pub(super) fn take_server(&mut self, server: &OfServer<'a>) {
        let Some((key, snippet)) = &server.snippet else { return };
        self.merged.policies.extend(snippet.records());
        let all = self.view.owner.settings();
        let others: Vec<_> = all
            .filter(|(by, settings)| settings.server.is_some() && by.key != **key)
            .map(|(by, _)| by)
            .collect();
        for by in others {
            let message = format!(
                "annotation server-snippet: Ingress {key} is older and has one, so this one is ignored on host {}: keep one",
                self.host
            );
            self.say(by, Note::rejected(message));
        }
    }
}
