//! What a row of the ConfigMap's keys says.

use crate::Settings;
use crate::form::{Form, Value};

/// A key of the ConfigMap.
pub struct Key {
    /// The name of the key, in lower case.
    pub name: &'static str,
    /// What its value may be.
    pub form: Form,
    /// In the reference, and here unless `how` says otherwise.
    pub default: &'static str,
    /// What becomes of the key.
    pub how: How,
}

/// What becomes of a key.
pub enum How {
    /// Data: a change needs no reload. The error says what the value is not.
    Data(Take),
    /// Data that keeps somebody out: while it cannot be honoured as a whole every location is closed.
    Protecting(Take),
    /// What the admission webhook refuses; nothing that is served depends on it.
    Admission(Take),
    /// It stands in nginx.conf: a change costs one reload.
    Conf,
    /// The same, and it keeps somebody out.
    ProtectingConf,
    /// Taken, without an effect; why.
    NoEffect(&'static str),
    /// Directives, each of which is named with what says the same; nothing of them holds.
    Named(Take),
    /// The key is not supported; the text says what to use instead.
    Unsupported(&'static str),
}

/// Puts a value into the settings.
pub type Take = fn(&mut Settings, &Value) -> Result<(), String>;

impl How {
    /// Whether the key keeps somebody out.
    pub fn is_protecting(&self) -> bool {
        matches!(self, How::Protecting(_) | How::ProtectingConf)
    }

    /// Whether the key stands in nginx.conf.
    pub fn is_conf(&self) -> bool {
        matches!(self, How::Conf | How::ProtectingConf)
    }
}

/// A row of the tables.
pub const fn key(name: &'static str, form: Form, default: &'static str, how: How) -> Key {
    Key { name, form, default, how }
}

impl Key {
    /// The value that the key has by itself.
    pub fn default_value(&self) -> Value {
        match self.form.read(self.default) {
            Ok((value, _)) => value,
            Err(_) => match self.form {
                Form::Number(..) => Value::Number(0),
                _ => Value::Text(String::new()),
            },
        }
    }
}
