//! The snippets of the main ConfigMap, which need no permission: its author decides about all locations.
//!
//! Errors:  what cannot be carried out and may keep somebody out closes every location.

use super::auth;
use super::say_to;
use super::speaker::{OfKey, Speaker};
use crate::patterns::Compiler;
use oxigress_objects::verdict::Note;
use oxigress_settings::Settings;
use oxigress_settings::grammar::directives::{self, Directive};

/// Puts what the snippets of the ConfigMap in namespace `owner` say into the settings.
pub fn read(settings: &mut Settings, owner: &str, notes: &mut Vec<Note>) {
    read_auth(settings, owner, notes);
}

/// The directives of a text; `None`: there are none, or they cannot be read, and all is closed.
fn parse(to: &mut OfKey<'_>, text: &str) -> Option<Vec<Directive>> {
    match directives::parse(text) {
        Ok(all) => Some(all).filter(|all| !all.is_empty()),
        Err(why) => {
            to.close(&format!("it is not valid nginx syntax ({why})"), "correct it");
            None
        }
    }
}

fn read_auth(settings: &mut Settings, owner: &str, notes: &mut Vec<Note>) {
    let text = std::mem::take(&mut settings.snippets.auth);
    let access = settings.defaults.policies.access.as_ref();
    let external = access.and_then(|access| access.external.clone());
    let mut to = OfKey { settings, notes, key: "global-auth-snippet" };
    let Some(mut external) = external else {
        if !text.is_empty() {
            to.warn("has no effect without global-auth-url");
        }
        return;
    };
    let Some(all) = parse(&mut to, &text) else { return };
    let left = auth::apply(&all, None, owner, &mut external, &mut Compiler::new([]));
    say_to(&mut to, "auth-snippet", left, None);
    settings.defaults.policies.access.get_or_insert_default().external = Some(external);
}
