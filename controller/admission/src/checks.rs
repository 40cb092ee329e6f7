//! What the webhook did, as metrics under ingress-nginx's names.
//!
//! Source:  ingress-nginx's controller. No configuration is rendered here: `render_*` say how many Ingresses a candidate was
//!          compared with, and in what time; `config_size` is the AdmissionReview's.

use oxigress_core::telemetry::metrics::{sample, title, with_constant};
use oxigress_objects::Key;
use oxigress_translate::ReviewOutcome;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most Ingresses that are counted apart: whoever may create some chooses their names.
const MAX_SERIES: usize = 10_000;

/// Counts, and what the last check was like.
#[derive(Default)]
pub struct Checks(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// How many reviews of an Ingress were admitted and denied.
    by_ingress: BTreeMap<Key, [u64; 2]>,
    last: Option<Last>,
}

struct Last {
    compared: usize,
    took: Duration,
    bytes: usize,
    roundtrip: Duration,
}

impl Checks {
    /// Counts one, unless it is another controller's and was not checked.
    pub fn count(
        &self,
        key: &Key,
        outcome: &ReviewOutcome,
        took: Duration,
        bytes: usize,
        roundtrip: Duration,
    ) {
        if outcome.compared == 0 && outcome.denial.is_none() {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_room = counts.by_ingress.len() < MAX_SERIES || counts.by_ingress.contains_key(key);
        let key = if is_room { key.clone() } else { Key::new("", "") };
        let [admitted, denied] = counts.by_ingress.entry(key).or_default();
        let count = if outcome.denial.is_none() { admitted } else { denied };
        *count = count.saturating_add(1);
        counts.last = Some(Last { compared: outcome.compared, took, bytes, roundtrip });
    }

    /// As Prometheus reads it; empty if nothing was checked.
    pub fn text(&self, constant: &[(String, String)]) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let Some(last) = &counts.last else { return out };
        for (index, name, help) in [
            (0, "check_success", "Ingresses that the admission webhook let pass"),
            (1, "check_errors", "Ingresses that the admission webhook refused"),
        ] {
            title(&mut out, name, "counter", help);
            for (key, counts) in &counts.by_ingress {
                let own = [("ingress", key.name.as_str()), ("namespace", &key.namespace)];
                let labels = with_constant(constant, &own);
                let count = counts.get(index).copied().unwrap_or_default();
                if count > 0 {
                    sample(&mut out, name, &labels, count as f64);
                }
            }
        }
        let (compared, took) = (last.compared as f64, last.took.as_secs_f64());
        for (name, help, value) in [
            ("tested_ingresses", "Ingresses that the last check looked at", compared),
            ("tested_duration", "Seconds of the last check", took),
            ("render_ingresses", "Ingresses that the last check looked at", compared),
            ("render_duration", "Seconds of the last check", took),
            ("config_size", "Bytes of the last AdmissionReview", last.bytes as f64),
            ("roundtrip_duration", "Seconds of the last request", last.roundtrip.as_secs_f64()),
        ] {
            let name = format!("admission_{name}");
            title(&mut out, &name, "gauge", help);
            sample(&mut out, &name, &with_constant(constant, &[]), value);
        }
        out
    }
}
