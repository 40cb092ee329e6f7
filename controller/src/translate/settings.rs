//! The main ConfigMap (`--configmap`) to settings.
//!
//! Source:  compat/configmap.md §1: keys without case, booleans as Go reads them, a value that does not
//!          convert leaves the default and the other keys alone.

use super::annotation::balancing::{LOAD_BALANCE, LoadBalance};
use super::annotation::defaults::Defaults;
use super::annotation::parse_bool;
use crate::streams::StreamSettings;
use crate::verdict::Note;
use crate::world::ConfigMap;
use oxigress_core::model::{Algorithm, RedirectCode};

/// What the ConfigMap says, with the reference's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// ssl-redirect.
    pub ssl_redirect: bool,
    /// force-ssl-redirect.
    pub force_ssl_redirect: bool,
    /// http-redirect-code.
    pub http_redirect_code: RedirectCode,
    /// no-tls-redirect-locations: beginnings of paths as configured.
    pub no_tls_redirect_locations: Vec<String>,
    /// load-balance: where no Ingress says otherwise.
    pub load_balance: Algorithm,
    /// service-upstream: where no Ingress says otherwise.
    pub service_upstream: bool,
    /// proxy-stream-*.
    pub stream: StreamSettings,
    /// What holds for every location whose Ingress says nothing else.
    pub defaults: Defaults,
    /// A key that protects every location and is not honoured yet: all of them are closed.
    pub closing_key: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            ssl_redirect: true,
            force_ssl_redirect: false,
            http_redirect_code: RedirectCode::PermanentRedirect,
            no_tls_redirect_locations: vec!["/.well-known/acme-challenge".into()],
            load_balance: Algorithm::RoundRobin,
            service_upstream: false,
            stream: StreamSettings::default(),
            defaults: Defaults::default(),
            closing_key: None,
        }
    }
}

/// Keys whose absence would let in whom the operator keeps out (security.md §3).
const PROTECTING: [&str; 6] = [
    "block-cidrs",
    "block-referers",
    "block-user-agents",
    "denylist-source-range",
    "global-auth-url",
    "whitelist-source-range",
];

/// Reads the whole map; what it cannot honour is noted.
pub fn parse(map: Option<&ConfigMap>) -> (Settings, Vec<Note>) {
    let mut settings = Settings::default();
    let mut notes = Vec::new();
    let mut unsupported = Vec::new();
    for (key, value) in map.iter().flat_map(|map| &map.data) {
        let name = key.to_ascii_lowercase();
        // Two spellings of one key: the one that is exactly the key counts.
        if name != *key && map.is_some_and(|map| map.data.contains_key(&name)) {
            continue;
        }
        let mut flag = |into: &mut bool| match parse_bool(value) {
            Some(flag) => *into = flag,
            None if value.is_empty() => *into = false,
            None => notes.push(Note::warning(format!(
                "data.{key}: {value:?} is not true or false: the default is used"
            ))),
        };
        match name.as_str() {
            "ssl-redirect" => flag(&mut settings.ssl_redirect),
            "force-ssl-redirect" => flag(&mut settings.force_ssl_redirect),
            "service-upstream" => flag(&mut settings.service_upstream),
            "load-balance" => {
                let text = value.trim();
                match LOAD_BALANCE.iter().find(|(name, _)| *name == text) {
                    Some((_, LoadBalance::Algorithm(algorithm))) => {
                        settings.load_balance = *algorithm;
                    }
                    None if text.is_empty() => {}
                    _ => notes.push(Note::warning(format!(
                        "data.{key}: {value:?} is not one of round_robin, ewma, least_conn, p2c: \
                         round_robin is used"
                    ))),
                }
            }
            name if name.starts_with("proxy-stream-") => {
                if let Err(why) = read_stream(&mut settings.stream, name, value.trim()) {
                    notes.push(Note::warning(format!("data.{key}: {value:?} {why}")));
                }
            }
            name if name.starts_with("upstream-hash-by") => notes.push(Note::remark(format!(
                "data.{key} has no effect, as in ingress-nginx: annotate the Ingress"
            ))),
            // The reference reads this one with its exact name only.
            "http-redirect-code" if name == *key => {
                match value.trim().parse().ok().and_then(|code: u16| code.try_into().ok()) {
                    Some(code) => settings.http_redirect_code = code,
                    None => notes.push(Note::warning(format!(
                        "data.{key}: {value:?} is not one of 301, 302, 307, 308: 308 is used"
                    ))),
                }
            }
            "no-tls-redirect-locations" => {
                let items = value.split(',').map(str::trim).filter(|item| !item.is_empty());
                settings.no_tls_redirect_locations = items.map(Into::into).collect();
            }
            name if PROTECTING.contains(&name) && !value.trim().is_empty() => {
                notes.push(Note::rejected(format!(
                    "data.{key} protects and is not supported yet, so every location answers 503: \
                     remove it to open them"
                )));
                settings.closing_key.get_or_insert_with(|| key.clone());
            }
            _ => unsupported.push(key.as_str()),
        }
    }
    if !unsupported.is_empty() {
        notes.push(Note::remark(format!("not supported yet: {}", unsupported.join(", "))));
    }
    (settings, notes)
}

/// The error says why the default is used.
fn read_stream(settings: &mut StreamSettings, name: &str, value: &str) -> Result<(), &'static str> {
    const TIME: &str = "is not a time such as 600s or 10m: the default is used";
    const NUMBER: &str = "is not a number from 0 to 65535: the default is used";
    let number = || value.parse::<u16>().map(u32::from).map_err(|_| NUMBER);
    match name {
        "proxy-stream-timeout" => settings.timeout_ms = milliseconds(value).ok_or(TIME)?,
        "proxy-stream-next-upstream-timeout" => {
            settings.next_upstream_timeout_ms = milliseconds(value).ok_or(TIME)?;
        }
        "proxy-stream-next-upstream-tries" => settings.next_upstream_tries = number()?,
        "proxy-stream-responses" => settings.responses = number()?,
        "proxy-stream-next-upstream" => {
            settings.next_upstream =
                parse_bool(value).ok_or("is not true or false: the default is used")?;
        }
        _ => return Err("has no effect: ingress-nginx has no such key"),
    }
    Ok(())
}

/// A time as nginx writes it, of one number and unit; without a unit seconds. At most ten days.
fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|ms| *ms <= 864_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(data: &[(&str, &str)]) -> (Settings, Vec<Note>) {
        let data = data.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        parse(Some(&ConfigMap { data }))
    }

    #[test]
    fn a_value_that_does_not_convert_leaves_the_others_alone() {
        let (settings, notes) = parsed(&[("ssl-redirect", "maybe"), ("http-redirect-code", "307")]);
        assert!(settings.ssl_redirect);
        assert_eq!(settings.http_redirect_code, RedirectCode::TemporaryRedirect);
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn times_and_numbers_of_streams_are_read_and_odd_ones_leave_the_default() {
        let (settings, notes) = parsed(&[
            ("proxy-stream-timeout", "5m"),
            ("proxy-stream-next-upstream-timeout", "1s; }"),
            ("proxy-stream-next-upstream-tries", "-1"),
            ("proxy-stream-responses", "0"),
            ("proxy-stream-next-upstream", "false"),
        ]);
        let stream = settings.stream;
        assert_eq!(
            (stream.timeout_ms, stream.responses, stream.next_upstream),
            (300_000, 0, false)
        );
        assert_eq!((stream.next_upstream_timeout_ms, stream.next_upstream_tries), (600_000, 3));
        assert_eq!(notes.len(), 2);
    }

    #[test]
    fn keys_have_no_case_and_the_exact_one_wins() {
        assert!(!parsed(&[("SSL-Redirect", "false")]).0.ssl_redirect);
        assert!(parsed(&[("SSL-Redirect", "false"), ("ssl-redirect", "true")]).0.ssl_redirect);
    }

    #[test]
    fn an_algorithm_that_is_unknown_is_round_robin() {
        assert_eq!(parsed(&[("load-balance", "ewma")]).0.load_balance, Algorithm::Ewma);
        for (text, notes) in [("", 0), ("EWMA", 1), ("chash", 1), ("sticky_balanced", 1)] {
            let (settings, noted) = parsed(&[("load-balance", text)]);
            assert_eq!((settings.load_balance, noted.len()), (Algorithm::RoundRobin, notes));
        }
    }

    #[test]
    fn service_upstream_can_be_the_default() {
        assert!(parsed(&[("service-upstream", "true")]).0.service_upstream);
        assert!(!parsed(&[("service-upstream", "maybe")]).0.service_upstream);
    }

    #[test]
    fn a_protecting_key_closes_unless_it_is_empty() {
        assert_eq!(
            parsed(&[("global-auth-url", "http://a.test")]).0.closing_key.unwrap(),
            "global-auth-url"
        );
        assert_eq!(parsed(&[("block-cidrs", "")]).0.closing_key, None);
    }
}
