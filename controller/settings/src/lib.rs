//! The main ConfigMap (`--configmap`) to settings, and the part of them that stands in nginx.conf.
//!
//! Shape:     [`keys`] has a row for each key: what its value may be and what becomes of it. A key is data, which needs
//!            no reload, or stands in nginx.conf ([`StaticConfig`]), or is named with what to do instead.
//! Errors:    a value that is none leaves the default and the other keys alone; of what keeps somebody out, it closes
//!            every location.
//! Source:    ingress-nginx's ConfigMap.
//! Knows:     the keys, the grammar that they share with annotations, and the file by which the controller role hands the
//!            nginx role what stands in nginx.conf ([`conf_input`]). Both roles read the same texts with the same forms.
//! Does not:  know Ingresses, or how nginx.conf is written.
//!
//! This is a crate of its own, below translation and the nginx role, because a key is one row: name, value, default and
//! effect. Rows divided between two crates would list every key twice.
#![forbid(unsafe_code)]

pub mod conf_input;
mod defaults;
pub mod form;
pub mod grammar;
pub mod key;
pub mod keys;
mod log_format;
mod read;
mod settings;
mod static_config;
pub mod tracing;

pub use defaults::Defaults;
pub use keys::logging::{ACCESS_LOG, ERROR_LOG};
pub use keys::tls::Hsts;
pub use read::parse;
pub use settings::{Admission, Settings, Snippets};
pub use static_config::StaticConfig;
