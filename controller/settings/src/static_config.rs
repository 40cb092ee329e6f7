//! What of the ConfigMap stands in nginx.conf, on its way from the role that reads the ConfigMap to the one that
//! writes nginx.conf.
//!
//! Shape:   texts by key, of the keys that are not at their default. Whoever asks for a value reads the text with the
//!          key's form, so the role that writes nginx.conf trusts nobody.

use crate::form::Value;
use crate::key::Key;
use crate::keys;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The values of the keys that stand in nginx.conf, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StaticConfig(BTreeMap<String, String>);

impl StaticConfig {
    /// Stores the text of a key.
    pub fn put(&mut self, key: &Key, text: &str) {
        self.0.insert(key.name.into(), text.into());
    }

    /// The value of a key: its default where nothing, or nothing that can be read, is said.
    pub fn value(&self, name: &str) -> Value {
        let Some(key) = keys::find(name).filter(|key| key.how.is_conf()) else {
            debug_assert!(false, "{name} does not stand in nginx.conf");
            return Value::Text(String::new());
        };
        let said = self.0.get(name).and_then(|text| key.form.read(text).ok());
        said.map_or_else(|| key.default_value(), |(value, _)| value)
    }

    /// The value of a flag.
    pub fn flag(&self, name: &str) -> bool {
        self.value(name).flag()
    }

    /// The value of a number.
    pub fn number(&self, name: &str) -> u64 {
        self.value(name).number()
    }

    /// Of a text; empty for none.
    pub fn text(&self, name: &str) -> String {
        self.value(name).text().to_owned()
    }

    /// The entries of a list.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.value(name).list().to_vec()
    }

    /// The same, but for the keys that keep somebody out, which are as in `other`.
    pub fn with_protecting(mut self, other: &StaticConfig) -> Self {
        for key in keys::all().filter(|key| key.how.is_protecting() && key.how.is_conf()) {
            match other.0.get(key.name) {
                Some(text) => drop(self.0.insert(key.name.into(), text.clone())),
                None => drop(self.0.remove(key.name)),
            }
        }
        self
    }

    /// The keys that are said otherwise in the two.
    pub fn differing(&self, other: &StaticConfig) -> Vec<String> {
        let all = self.0.keys().chain(other.0.keys()).collect::<std::collections::BTreeSet<_>>();
        all.into_iter().filter(|key| self.0.get(*key) != other.0.get(*key)).cloned().collect()
    }
}
