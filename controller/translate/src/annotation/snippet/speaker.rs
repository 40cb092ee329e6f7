//! To whom it is said what a snippet leaves out: an Ingress, or the ConfigMap.

use crate::annotation::reader::Reader;
use oxigress_objects::verdict::Note;
use oxigress_settings::Settings;

/// Whoever has a snippet.
pub trait Speaker {
    /// Says what has no effect.
    fn remark(&mut self, what: &str);
    /// Says what is ignored.
    fn warn(&mut self, what: &str);
    /// Says what is answered with 503.
    fn reject(&mut self, what: &str);
    /// Closes all that the snippet holds for.
    fn close(&mut self, why: &str, remedy: &str);
}

/// An annotation of an Ingress.
pub struct OfAnnotation<'r, 'a> {
    /// The annotations of the Ingress.
    pub reader: &'r mut Reader<'a>,
    /// The name of this one.
    pub name: &'static str,
}

impl Speaker for OfAnnotation<'_, '_> {
    fn remark(&mut self, what: &str) {
        self.reader.notes.push(Note::remark(format!("annotation {}: {what}", self.name)));
    }

    fn warn(&mut self, what: &str) {
        self.reader.warn(self.name, what);
    }

    fn reject(&mut self, what: &str) {
        self.reader.notes.push(Note::rejected(format!("annotation {}: {what}", self.name)));
    }

    fn close(&mut self, why: &str, remedy: &str) {
        self.reader.close(self.name, why, remedy);
    }
}

/// A key of the ConfigMap.
pub struct OfKey<'s> {
    /// What the ConfigMap says.
    pub settings: &'s mut Settings,
    /// What there is to say about it.
    pub notes: &'s mut Vec<Note>,
    /// The key's name.
    pub key: &'static str,
}

impl Speaker for OfKey<'_> {
    fn remark(&mut self, what: &str) {
        self.notes.push(Note::remark(format!("data.{}: {what}", self.key)));
    }

    fn warn(&mut self, what: &str) {
        self.notes.push(Note::warning(format!("data.{}: {what}", self.key)));
    }

    fn reject(&mut self, what: &str) {
        self.warn(what);
    }

    fn close(&mut self, why: &str, remedy: &str) {
        let key = self.key;
        self.notes.push(Note::rejected(format!(
            "data.{key} restricts access and cannot be applied, so every location answers 503: {why}: {remedy} to open them"
        )));
        self.settings.close(key);
    }
}
