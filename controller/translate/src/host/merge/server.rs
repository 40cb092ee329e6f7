//! What a host's paths have of its server-snippet, and of the ConfigMap's snippets.

use super::{Merge, Winner};
use crate::annotation::{Common, ServerSnippet};
use crate::backend::spec::BackendSpec;
use crate::host::owner::Owner;
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_objects::Key;
use oxigress_objects::verdict::Note;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The policies of a path by themselves, and with what they inherit.
type Inherited = (Arc<Policies>, Arc<Policies>);

/// The server-snippet of the oldest Ingress of the host's owner that has one.
pub(super) struct OfServer<'a> {
    snippet: Option<(&'a Key, Arc<ServerSnippet>)>,
    /// What paths of other namespaces have of it, if there are any.
    of_guests: Option<ServerSnippet>,
    common: &'a Common,
    /// By address, as rules share their policies, for guests and others.
    known: BTreeMap<(*const Policies, bool), Inherited>,
}

impl<'a> OfServer<'a> {
    pub fn new(owner: &Owner<'a>, common: &'a Common) -> Self {
        let mut all = owner.settings();
        let snippet = all.find_map(|(by, settings)| Some((&by.key, settings.server.clone()?)));
        OfServer { snippet, of_guests: None, common, known: BTreeMap::new() }
    }

    /// Whether paths without lists of networks of their own inherit some.
    pub fn has_lists(&self) -> bool {
        let host = self.snippet.as_ref().map(|(_, snippet)| &**snippet);
        if host.is_none() && self.common.is_silent() {
            return false;
        }
        let all = self.common.of_path(&Policies::default(), host);
        all.and_then(|all| all.access).is_some_and(|access| access.has_lists())
    }

    /// The policies of an Ingress's path with what it inherits.
    pub fn inherited(&mut self, by: &Key, own: &Arc<Policies>) -> Arc<Policies> {
        if self.snippet.is_none() && self.common.is_silent() {
            return own.clone();
        }
        let is_guest =
            self.snippet.as_ref().is_some_and(|(owner, _)| owner.namespace != by.namespace);
        let known = self.known.entry((Arc::as_ptr(own), is_guest));
        // The own ones stay, so that no others get their address.
        let (_, inherited) = known.or_insert_with(|| {
            let host = self.snippet.as_ref().map(|(_, snippet)| &**snippet);
            let host = host.map(|host| match is_guest {
                true => self.of_guests.get_or_insert_with(|| host.for_guests()),
                false => host,
            });
            let all = self.common.of_path(own, host);
            (own.clone(), all.map_or_else(|| own.clone(), Arc::new))
        });
        inherited.clone()
    }
}

impl<'a> Merge<'a> {
    /// Policies of one rule, and the backends that they name.
    pub(super) fn take_policies(
        &mut self,
        winner: &Winner<'a>,
        id: Option<&PolicyId>,
        policies: Arc<Policies>,
    ) {
        let Some(id) = id else { return };
        let urls = crate::ingress::urls(&policies);
        self.merged.urls.extend(urls.map(|url| (url.clone(), winner.by.key.clone())));
        let errors = policies.errors.as_ref().and_then(|errors| errors.backend.as_ref());
        if (policies.fallback.is_some() || errors.is_some())
            && let Some(to) = winner.by.fallback()
        {
            self.add_backend(to.backend.clone(), BackendSpec::shared(to), winner.by, "");
        }
        self.merged.policies.insert(id.clone(), policies);
    }

    /// Takes the records of the server over, and says to younger Ingresses that theirs have no effect.
    pub(super) fn take_server(&mut self, server: &OfServer<'a>) {
        if !server.known.is_empty() {
            self.merged.policies.extend(server.common.records());
        }
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
