//! Annotations about tracing.
//!
//! Source:  ingress-nginx's annotations: the two others count only where tracing is on.

use super::reader::Reader;
use oxigress_core::model::policy::{Policies, Template};
use oxigress_settings::grammar::is_word;

/// Reads the annotations about tracing.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) {
    let mut is_on = policies.tracing.is_some();
    reader.flag("enable-opentelemetry", &mut is_on);
    if !is_on {
        policies.tracing = None;
        return;
    }
    let mut tracing =
        policies.tracing.take().unwrap_or_else(|| reader.context.defaults.tracing.clone());
    reader.flag("opentelemetry-trust-incoming-span", &mut tracing.trusts_client);
    let operation =
        reader.parsed("opentelemetry-operation-name", "letters, digits, `_` and `-`", |text| {
            is_word(text).then(|| Template::parse(text).ok()).flatten()
        });
    tracing.operation = operation.or(tracing.operation);
    policies.tracing = Some(tracing);
}
