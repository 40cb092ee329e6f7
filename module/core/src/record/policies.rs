//! Policies of rules, as JSON: a worker reads a record once and keeps the compiled form.

use super::definition::Record;
use super::definition::{Checks, Fault};
use super::{check_json, decode_json, encode_json};
use crate::model::policy::defined::{Definitions, OF_DEFINITIONS};
use crate::model::policy::script::check_name;
use crate::model::policy::{Limits, Policies, PolicyId, Proxy, Script, UpstreamTls};
use crate::text::template::cost;

/// The kind of record that holds policies. A rule whose policies have no record answers 503.
pub enum PolicySets {}

impl Record for PolicySets {
    type Key = PolicyId;
    type Value = Policies;

    fn encode(_: &PolicyId, policies: &Policies) -> Option<Vec<u8>> {
        Some(encode_json(policies))
    }

    fn validate(_: &[u8], value: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
        check_json(value, "these are no policies", |policies| check_policies(policies, checks))
    }
}

/// [`Policies`] of a record; `None` for damaged bytes.
pub fn decode_policies(value: &[u8]) -> Option<Policies> {
    decode_json(value)
}

/// Checks what nginx would take and go wrong with, how long all of it is and takes, and the TLS settings toward endpoints.
pub fn check_policies(policies: &Policies, checks: &dyn Checks) -> Result<(), Fault> {
    if let Some(status) = policies.denied {
        check_refusal("/denied", status)?;
    }
    check_size(policies)?;
    check_cost(policies)?;
    policies.limits.as_ref().map_or(Ok(()), check_limits)?;
    policies.script.as_ref().map_or(Ok(()), |script| check_script("/script", script))?;
    policies.definitions.as_ref().map_or(Ok(()), |found| check_definitions(found))?;
    let external = policies.access.as_ref().and_then(|access| access.external.as_ref());
    if let Some(script) = external.and_then(|external| external.script.as_ref()) {
        check_script("/access/external/script", script)?;
    }
    let Some(proxy) = &policies.proxy else { return Ok(()) };
    check_buffer("/proxy/buffer_bytes", proxy.buffer_bytes)?;
    check_buffer("/proxy/body_buffer_bytes", proxy.body_buffer_bytes)?;
    proxy.tls.as_ref().map_or(Ok(()), |tls| check_upstream_tls(tls, checks))
}

/// A worker reads a record on its event loop, and each part into objects of their own; long lists and files have their own
/// bounds and are read faster.
fn check_size(policies: &Policies) -> Result<(), Fault> {
    let (access, limits) = (policies.access.as_ref(), policies.limits.as_ref());
    let networks = access.and_then(|access| access.allow.as_ref()).into_iter();
    let networks = networks.chain(access.map(|access| &access.deny));
    let networks = networks.chain(limits.map(|limits| &limits.exempt)).map(json_bytes);
    let users =
        access.and_then(|access| access.basic.as_ref()).map(|basic| json_bytes(&basic.users));
    let tls = policies.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref());
    let pem = tls.map(|tls| json_bytes(&tls.certificate) + json_bytes(&tls.key));
    let whole = json_bytes(policies);
    let other = whole.saturating_sub(networks.chain(users).chain(pem).sum());
    let (found, most) = match other > Policies::MAX_OTHER_BYTES {
        true => (other, Policies::MAX_OTHER_BYTES),
        false => (whole, Policies::MAX_BYTES),
    };
    match found > most {
        false => Ok(()),
        true => Err(Fault::new(
            "",
            format!(
                "{found} bytes of settings, at most {most} are taken: use fewer or shorter ones"
            ),
        )),
    }
}

fn json_bytes(value: &(impl serde::Serialize + ?Sized)) -> usize {
    encode_json(value).len()
}

fn check_cost(policies: &Policies) -> Result<(), Fault> {
    let (count, most) = (policies.header_count(), Policies::MAX_HEADERS);
    if count > most {
        return Err(Fault::new(
            "",
            format!("{count} headers, at most {most} are taken: use fewer"),
        ));
    }
    let sum: u32 = match &policies.definitions {
        Some(definitions) => definitions.cost(),
        None => policies.templates().iter().map(|template| template.cost()).sum(),
    };
    match sum > cost::MOST_OF_POLICIES {
        false => Ok(()),
        true => Err(Fault::new(
            "",
            "the variables of all its texts together take too long to look up: use fewer cookies, parameters and headers",
        )),
    }
}

fn check_script(field: &'static str, script: &Script) -> Result<(), Fault> {
    let counts = [
        ("steps", script.step_count(), Script::MAX_STEPS),
        ("locations", script.locations.len(), Script::MAX_LOCATIONS),
        ("patterns", script.patterns().len(), Script::MAX_PATTERNS),
    ];
    check_counts(field, &counts)
}

/// Checks how many there are of things, each with how many are taken.
fn check_counts(field: &'static str, counts: &[(&str, usize, usize)]) -> Result<(), Fault> {
    match counts.iter().find(|(_, count, most)| count > most) {
        None => Ok(()),
        Some((what, count, most)) => {
            Err(Fault::new(field, format!("{count} {what}, at most {most} are taken: use fewer")))
        }
    }
}

fn check_definitions(found: &Definitions) -> Result<(), Fault> {
    let counts = [
        ("variables", found.variables.len(), Definitions::MAX_VARIABLES),
        ("patterns", found.patterns().count(), Definitions::MAX_PATTERNS),
    ];
    check_counts("/definitions", &counts)?;
    let mut names = found.variables.keys();
    names
        .try_for_each(|name| check_name(name, OF_DEFINITIONS))
        .map_err(|why| Fault::new("/definitions/variables", why))
}

fn check_limits(limits: &Limits) -> Result<(), Fault> {
    let Limits { per_second, per_minute, connections, .. } = limits;
    let statuses = [
        ("/limits/per_second/status", per_second.map(|limit| limit.status)),
        ("/limits/per_minute/status", per_minute.map(|limit| limit.status)),
        ("/limits/connections/status", connections.map(|limit| limit.status)),
    ];
    let mut given = statuses.into_iter().filter_map(|(field, status)| Some((field, status?)));
    given.try_for_each(|(field, status)| check_refusal(field, status))
}

/// What refuses a request is an error: with another status nginx lets it in, redirects it or waits for what never comes.
fn check_refusal(field: &'static str, status: u16) -> Result<(), Fault> {
    match (400..=599).contains(&status) {
        true => Ok(()),
        false => Err(Fault::new(field, format!("status {status}: send one from 400 to 599"))),
    }
}

fn check_buffer(field: &'static str, bytes: Option<u32>) -> Result<(), Fault> {
    let least = Proxy::LEAST_BUFFER_BYTES;
    match bytes.filter(|bytes| *bytes < least) {
        None => Ok(()),
        Some(bytes) => {
            Err(Fault::new(field, format!("a buffer of {bytes} bytes: send {least} or more")))
        }
    }
}

fn check_upstream_tls(tls: &UpstreamTls, checks: &dyn Checks) -> Result<(), Fault> {
    for word in &tls.protocols {
        checks.protocol(word).map_err(|error| Fault::new("/proxy/tls/protocols", error))?;
    }
    if let Some(ciphers) = &tls.ciphers {
        let checked = checks.cipher_list(ciphers.as_str());
        checked.map_err(|error| Fault::new("/proxy/tls/ciphers", error))?;
    }
    if !tls.certificate.is_empty() || !tls.key.is_empty() {
        let checked = checks.pair(tls.certificate.as_bytes(), tls.key.as_bytes());
        checked.map_err(|error| Fault::new("/proxy/tls/certificate", error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::NoChecks;

    #[test]
    fn numbers_that_nginx_would_go_wrong_with_are_refused() {
        let limit = |name: &str, status: u16| {
            format!(
                r#"{{"limits": {{"owner": "o", "{name}": {{"requests": 1, "status": {status}}}}}}}"#
            )
        };
        let proxy = |name: &str, bytes: u32| format!(r#"{{"proxy": {{"{name}": {bytes}}}}}"#);
        let statuses =
            [(0, false), (200, false), (399, false), (400, true), (599, true), (600, false)];
        let mut cases = Vec::new();
        for (status, is_good) in statuses {
            cases.push(("/denied".into(), format!(r#"{{"denied": {status}}}"#), is_good));
            for name in ["per_second", "per_minute", "connections"] {
                cases.push((format!("/limits/{name}/status"), limit(name, status), is_good));
            }
        }
        for (bytes, is_good) in [(0, false), (1, false), (1_023, false), (1_024, true)] {
            for name in ["buffer_bytes", "body_buffer_bytes"] {
                cases.push((format!("/proxy/{name}"), proxy(name, bytes), is_good));
            }
        }
        for (field, text, is_good) in cases {
            let found = PolicySets::validate(b"p", text.as_bytes(), &NoChecks);
            let expected = (!is_good).then_some(field.as_str());
            assert_eq!(found.err().map(|fault| fault.field), expected, "{text}");
        }
    }

    fn fault(policies: &serde_json::Value) -> Option<Fault> {
        PolicySets::validate(b"p", policies.to_string().as_bytes(), &NoChecks).err()
    }

    #[test]
    fn the_variables_of_all_texts_have_one_bound() {
        let headers = |count: usize, value: &str| {
            let all: Vec<_> = (0..count)
                .map(|number| serde_json::json!({"name": format!("X-{number}"), "value": value}))
                .collect();
            serde_json::json!({"request_headers": all, "upstream_host": value})
        };
        for (count, value, is_good) in [
            (39, "$cookie_a", true),
            (40, "$cookie_a", false),
            (199, "$arg_a", true),
            (200, "$arg_a", false),
            (199, "$host$http_a", true),
            (1_000, "no variables", true),
            (1_001, "no variables", false),
        ] {
            let found = fault(&headers(count, value));
            assert_eq!(found.is_none(), is_good, "{count} of {value}");
            let why = if count > 1_000 { "1001 headers" } else { "fewer cookies" };
            assert!(found.is_none_or(|fault| fault.error.contains(why)));
        }
    }

    #[test]
    fn long_lists_and_files_fit_and_long_settings_do_not() {
        let networks: Vec<_> =
            (0..10_000).map(|n| format!("2001:db8:ffff:ffff:ffff:ffff:ffff:{n:04x}/128")).collect();
        let users = "user:$2y$12$0123456789012345678901234567890123456789012345678901\n";
        let mut policies = serde_json::json!({
            "access": {
                "allow": networks, "deny": networks,
                "basic": {"realm": "r", "users": users.repeat(1024 * 1024 / users.len())},
            },
            "limits": {"owner": "o", "exempt": networks},
            "proxy": {"tls": {"certificate": "c".repeat(128 * 1024), "key": "k".repeat(128 * 1024)}},
        });
        assert_eq!(fault(&policies), None, "{} bytes", policies.to_string().len());
        let header = |number: usize, bytes: usize| serde_json::json!({"name": format!("X-{number}"), "value": "v".repeat(bytes)});
        policies["response_headers"] = (0..60).map(|number| header(number, 8_000)).collect();
        assert_eq!(fault(&policies), None);
        policies["response_headers"] = (0..70).map(|number| header(number, 8_000)).collect();
        assert!(fault(&policies).is_some_and(|fault| fault.error.contains("at most 524288")));
        let statuses =
            serde_json::json!([{"name": "A", "action": "set", "statuses": vec![200; 200_000]}]);
        assert!(fault(&serde_json::json!({"response_edits": statuses})).is_some());
    }
}
