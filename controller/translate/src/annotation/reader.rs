//! The annotations of one Ingress, and the objects that they name.
//!
//! Errors:  what is invalid is noted; what protects and is invalid closes the Ingress's locations.
//! Source:  ingress-nginx's annotation parsers; what protects and cannot be read closes.

pub mod value;

use super::table;
use ipnet::IpNet;
use oxigress_core::model::policy::Template;
use oxigress_core::model::{Bundle, BundleId, shorten};
use oxigress_objects::secret::Fields;
use oxigress_objects::verdict::Note;
use oxigress_objects::{ConfigMap, Key, Kind, ObjectRef, SecretHistory, World};
use oxigress_settings::Defaults;
use oxigress_settings::grammar::template;
use oxigress_validate::tls::Named;
use std::collections::{BTreeMap, BTreeSet};
use value::Value;

/// A longer value of an annotation is refused.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The Ingress whose annotations are read, and what they may name.
#[derive(Clone, Copy)]
pub struct IngressContext<'a> {
    /// What its annotations may name.
    pub world: &'a World,
    /// The Ingress that is read.
    pub ingress: &'a Key,
    /// What holds where no annotation says otherwise.
    pub defaults: &'a Defaults,
    /// The port on which HTTPS is served.
    pub https_port: u16,
}

/// The annotations of one Ingress, by name.
pub struct Reader<'a> {
    /// The Ingress itself, and what its annotations may name.
    pub context: IngressContext<'a>,
    /// Notes about annotations that are not served as they say.
    pub notes: Vec<Note>,
    /// The Secrets, ConfigMaps and Services that were looked at: a change of any may change what is read.
    pub referred: BTreeSet<ObjectRef>,
    /// Settings that protect and cannot be honoured.
    pub closing: Vec<String>,
    /// The bundles that what is read names.
    pub bundles: BTreeMap<BundleId, Bundle>,
    all: BTreeMap<&'a str, &'a str>,
}

impl<'a> Reader<'a> {
    /// Those with `prefix`; one that is too long counts as none, or closes.
    pub fn new(
        context: IngressContext<'a>,
        prefix: &str,
        all: &'a BTreeMap<String, String>,
    ) -> Self {
        let named = all.iter().filter_map(|(key, text)| {
            Some((key.strip_prefix(prefix)?.strip_prefix('/')?, text.as_str()))
        });
        let (all, long): (BTreeMap<_, _>, BTreeMap<_, _>) =
            named.partition(|(_, text)| text.len() <= MAX_VALUE_BYTES);
        let mut reader = Reader {
            context,
            notes: Vec::new(),
            referred: BTreeSet::new(),
            closing: Vec::new(),
            bundles: BTreeMap::new(),
            all,
        };
        for (name, text) in long {
            let why = format!("has {} bytes, at most {MAX_VALUE_BYTES} are taken", text.len());
            match table::protects(name) {
                true => reader.close(name, &why, "shorten it"),
                false => reader.warn(name, &format!("{why}: the default is used")),
            }
        }
        reader
    }

    /// All of them, as written.
    pub fn all(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.all.clone().into_iter()
    }

    /// Whether there is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Takes those of these names that are empty, as templates leave them, for absent.
    pub fn drop_empty(&mut self, names: &[&str]) {
        self.all.retain(|name, text| !names.contains(name) || !text.trim().is_empty());
    }

    /// The value for a parser that says itself what is wrong.
    pub fn value(&mut self, name: &'static str) -> Option<Value<'_>> {
        Some(Value { name, text: self.all.get(name)?, notes: &mut self.notes })
    }

    /// The value without white space around it.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.all.get(name).map(|text| text.trim())
    }

    /// The name that counts of one with an alias, which counts while the first is absent or empty.
    pub fn name_or_alias(&self, name: &'static str, alias: &'static str) -> &'static str {
        let is_filled = |name| self.text(name).is_some_and(|text| !text.is_empty());
        if !is_filled(name) && is_filled(alias) { alias } else { name }
    }

    /// Reads a boolean, as Go writes it.
    pub fn flag(&mut self, name: &'static str, into: &mut impl From<bool>) {
        if let Some(value) = self.value(name) {
            value.flag(into);
        }
    }

    /// Reads `on` or `off`.
    pub fn switch(&mut self, name: &'static str, into: &mut Option<bool>) {
        if let Some(value) = self.value(name) {
            value.choice(&[("on", true), ("off", false)], into);
        }
    }

    /// A number in these bounds.
    pub fn number<N: TryFrom<i64>>(
        &mut self,
        name: &'static str,
        least: i64,
        most: i64,
    ) -> Option<N> {
        let mut number = None;
        self.value(name)?.number(least, most, &mut number);
        N::try_from(number?).ok()
    }

    /// What `parse` makes of the text; else a warning that it is not `what`.
    pub fn parsed<T>(
        &mut self,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let (_, parsed) = self.try_parse(name, parse)?;
        if parsed.is_none() {
            self.value(name)?.refuse(what);
        }
        parsed
    }

    /// An annotation's text, and what `parse` makes of it: nothing of an empty one.
    fn try_parse<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<(&'a str, Option<T>)> {
        let text = self.text(name)?;
        Some((text, parse(text).filter(|_| !text.is_empty())))
    }

    /// What `parse` makes of the text of one that protects; else the Ingress is closed.
    pub fn parsed_or_closed<T>(
        &mut self,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let (text, parsed) = self.try_parse(name, parse)?;
        if parsed.is_none() {
            self.close(name, &format!("{:?} is not {what}", shorten(text)), "correct it");
        }
        parsed
    }

    /// A text with variables, of letters, digits and `more`.
    pub fn template(&mut self, name: &'static str, what: &str, more: &[u8]) -> Option<Template> {
        let text = self.text(name)?;
        match template(text, more) {
            Ok(template) if !text.is_empty() => Some(template),
            Ok(_) => self.refuse(name, what),
            Err(None) => self.refuse(name, what),
            Err(Some(why)) => self.refuse(name, &format!("usable ({why})")),
        }
    }

    fn refuse<T>(&mut self, name: &'static str, what: &str) -> Option<T> {
        self.value(name)?.refuse(what);
        None
    }

    /// Says that a setting that protects cannot be honoured.
    pub fn close(&mut self, name: &str, why: &str, remedy: &str) {
        self.close_with(name, why, "its locations answer 503", remedy);
    }

    /// The same of a setting that protects whole hosts: client certificates are asked for before a location is known.
    pub fn close_hosts(&mut self, name: &str, why: &str, remedy: &str) {
        let effect = "its hosts answer 403, and its locations 503 on hosts whose settings are another Ingress's";
        self.close_with(name, why, effect, remedy);
    }

    fn close_with(&mut self, name: &str, why: &str, effect: &str, remedy: &str) {
        let message = format!("annotation {name}: {why}, so {effect}: {remedy}");
        self.notes.push(Note { cause: self.behind(name), ..Note::rejected(message) });
        self.closing.push(name.to_owned());
    }

    /// The object that an annotation names, if it may be looked at: what closes is then its fault.
    fn behind(&self, name: &str) -> Option<ObjectRef> {
        let text = self.text(name)?;
        let (namespace, name) =
            text.split_once('/').unwrap_or((&self.context.ingress.namespace, text));
        let key = Key::new(namespace, name);
        self.referred.iter().find(|object| object.key == key).cloned()
    }

    /// Says something about one annotation.
    pub fn warn(&mut self, name: &str, message: &str) {
        self.notes.push(Note::warning(format!("annotation {name}: {message}")));
    }

    /// The object that the text names as `name` or `namespace/name`; why it may not be looked at.
    fn named(&mut self, kind: Kind, text: &str) -> Result<Key, String> {
        let own = self.context.ingress.namespace.as_str();
        let (namespace, name) = text.split_once('/').unwrap_or((own, text));
        let is_name = |text: &str| {
            let is_plain =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
            (1..=253).contains(&text.len()) && text.bytes().all(is_plain)
        };
        if !is_name(namespace) || !is_name(name) {
            return Err(format!("{:?} is not a {kind}'s name", shorten(text)));
        }
        let is_other = namespace != own && !self.context.defaults.cross_namespace;
        if is_other {
            return Err(format!("{kind} {namespace}/{name} is of another namespace"));
        }
        let key = Key::new(namespace, name);
        self.referred.insert(ObjectRef::new(kind, key.clone()));
        Ok(key)
    }

    /// The Secret that the text names.
    pub fn secret(&mut self, text: &str) -> Result<(Key, &'a SecretHistory), String> {
        let key = self.named(Kind::Secret, text)?;
        match self.context.world.secrets.get(&key) {
            Some(history) => Ok((key, history)),
            None => Err(format!("Secret {key} does not exist")),
        }
    }

    /// Keeps a bundle for what names it.
    pub fn bundle(&mut self, (id, bundle): Named) -> BundleId {
        self.bundles.insert(id.clone(), bundle);
        id
    }

    /// What the Secret holds beside a pair.
    pub fn fields(&mut self, text: &str) -> Result<(Key, &'a Fields), String> {
        self.secret(text).map(|(key, history)| (key, &*history.secret.fields))
    }

    /// The ConfigMap that the text names.
    pub fn config_map(&mut self, text: &str) -> Result<(Key, &'a ConfigMap), String> {
        let key = self.named(Kind::ConfigMap, text)?;
        match self.context.world.config_maps.get(&key) {
            Some(map) => Ok((key, map)),
            None => Err(format!("ConfigMap {key} does not exist")),
        }
    }

    /// Networks and addresses, divided by commas; else the Ingress is closed.
    pub fn networks(&mut self, name: &'static str) -> Option<Vec<IpNet>> {
        self.parsed_or_closed(name, "a list of addresses and networks", networks)
    }
}

/// Networks and addresses, divided by commas: at most 10,000.
pub fn networks(text: &str) -> Option<Vec<IpNet>> {
    let network = |item: &str| match item.parse::<IpNet>() {
        Ok(network) => Some(network),
        Err(_) => item.parse::<std::net::IpAddr>().ok().map(IpNet::from),
    };
    let all: Option<BTreeSet<_>> = text.split(',').map(|item| network(item.trim())).collect();
    all.filter(|all| all.len() <= 10_000).map(|all| all.into_iter().collect())
}
