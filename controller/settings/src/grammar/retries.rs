//! The values of `proxy-next-upstream`, in annotations and in the ConfigMap.
//!
//! Source:  ingress-nginx's annotations, nginx's directive `proxy_next_upstream`.

use oxigress_core::model::policy::Condition;

/// The words of an error message for what [`conditions`] takes.
pub const CONDITIONS: &str = "a list of error, timeout, invalid_header, http_500, http_502, http_503, http_504, http_403, http_404, http_429, \
     non_idempotent, or off";

/// Adds what the ConfigMap's `retry-non-idempotent` asks for, unless nothing is tried again.
pub fn retry_non_idempotent(conditions: &mut Vec<Condition>) {
    if !conditions.is_empty() && !conditions.contains(&Condition::NonIdempotent) {
        conditions.push(Condition::NonIdempotent);
    }
}

/// The words of `proxy_next_upstream`; none of them: never.
pub fn conditions(text: &str) -> Option<Vec<Condition>> {
    let mut all = Vec::new();
    let mut is_off = false;
    for word in text.split_ascii_whitespace() {
        let condition = match word {
            "off" => {
                is_off = true;
                continue;
            }
            "error" => Condition::Error,
            "timeout" => Condition::Timeout,
            "invalid_header" => Condition::InvalidHeader,
            "http_500" => Condition::Http500,
            "http_502" => Condition::Http502,
            "http_503" => Condition::Http503,
            "http_504" => Condition::Http504,
            "http_403" => Condition::Http403,
            "http_404" => Condition::Http404,
            "http_429" => Condition::Http429,
            "non_idempotent" => Condition::NonIdempotent,
            _ => return None,
        };
        if !all.contains(&condition) {
            all.push(condition);
        }
    }
    Some(if is_off { Vec::new() } else { all })
}
