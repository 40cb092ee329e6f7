//! Reads the main ConfigMap, and the ConfigMaps that it names, into settings.

use crate::Settings;
use crate::form::Form;
use crate::grammar::external_auth;
use crate::key::{How, Key};
use crate::keys;
use crate::settings::Maps;
use oxigress_core::model::policy::{
    HeaderName, HeaderValue, RequestHeader, ResponseHeader, Template,
};
use oxigress_core::model::shorten;
use oxigress_objects::verdict::Note;
use oxigress_objects::{ConfigMap, Key as ObjectKey};
use std::collections::BTreeMap;

/// Reads the whole map, and those that it names; what it cannot honour is noted.
pub fn parse(map: Option<&ConfigMap>, all: &Maps) -> (Settings, Vec<Note>) {
    let mut reading = Reading::default();
    for (name, text) in map.iter().flat_map(|map| &map.data) {
        let lower = name.to_ascii_lowercase();
        // Two spellings of one key: the one that is exactly the key counts.
        if lower != *name && map.is_some_and(|map| map.data.contains_key(&lower)) {
            continue;
        }
        match keys::find(&lower) {
            Some(key) => reading.take(key, name, text),
            None => reading.unknown.push(name),
        }
    }
    let Reading { mut settings, mut notes, unknown, without_effect } = reading;
    read_headers(&mut settings, all, &mut notes);
    apply_tracing(&mut settings, &mut notes);
    match external_auth::of_texts(&settings.global_auth) {
        Ok(None) => {}
        Ok(auth) => settings.defaults.policies.access.get_or_insert_default().external = auth,
        Err((annotation, why)) => {
            let key = format!("global-{annotation}");
            notes.push(Note::rejected(format!(
                "data.{key} restricts access and cannot be applied, so every location answers 503: {why}: correct it or \
                 remove global-auth-url to open them"
            )));
            settings.closing_key.get_or_insert(key);
        }
    }
    if settings.closing_key.is_some() {
        // Whatever is made of these policies is closed, whichever API it comes from.
        settings.defaults.policies.denied = Some(503);
    }
    for (why, names) in without_effect {
        notes.push(Note::remark(format!(
            "data: {} {}: {why}",
            names.join(", "),
            match names.len() {
                1 => "has no effect",
                _ => "have no effect",
            }
        )));
    }
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        notes.push(Note::warning(format!("data: unknown keys, which have no effect: {unknown}")));
    }
    (settings, notes)
}

#[derive(Default)]
struct Reading<'m> {
    settings: Settings,
    notes: Vec<Note>,
    unknown: Vec<&'m str>,
    without_effect: BTreeMap<&'static str, Vec<&'m str>>,
}

impl<'m> Reading<'m> {
    fn take(&mut self, key: &'static Key, name: &'m str, text: &str) {
        let is_default = text.trim() == key.default;
        if is_default || text.trim().is_empty() && !key.form.takes_empty() {
            // The settings begin with the defaults.
            return;
        }
        let (value, odd) = match (&key.how, key.form.read(text)) {
            (How::NoEffect(why), _) => {
                return self.without_effect.entry(why).or_default().push(name);
            }
            (How::Unsupported(instead), read) => {
                // One that is off asks for nothing.
                let is_off = read.is_ok_and(|(value, _)| value == key.default_value());
                return if !is_off {
                    let message = format!("data.{name} is not supported: {instead}");
                    self.notes.push(Note::warning(message));
                };
            }
            (_, Ok(read)) => read,
            (_, Err(what)) => return self.refuse(key, name, text, &format!("is not {what}")),
        };
        if !odd.is_empty() {
            let what = key.form.words();
            let what = what.strip_prefix("a list of ").unwrap_or(&what);
            let odd = odd.iter().map(|item| shorten(item)).collect::<Vec<_>>().join(", ");
            if key.how.is_protecting() {
                return self.refuse(key, name, &odd, &format!("are not {what}"));
            }
            let message = format!("data.{name}: {odd:?} ignored: items must be {what}");
            self.notes.push(Note::warning(message));
        }
        match &key.how {
            How::Data(take) | How::Protecting(take) | How::Admission(take) | How::Named(take) => {
                if let Err(what) = take(&mut self.settings, &value) {
                    self.refuse(key, name, text, &what);
                }
            }
            _ if value == key.default_value() => {}
            _ => self.settings.static_config.put(key, text),
        }
    }

    /// What it says is not taken.
    fn refuse(&mut self, key: &Key, name: &str, text: &str, what: &str) {
        let text = match key.form {
            Form::Secret(..) => "the value".into(),
            _ => format!("{:?}", shorten(text)),
        };
        if key.how.is_protecting() {
            self.notes.push(Note::rejected(format!(
                "data.{name} restricts access and cannot be applied, so every location answers 503: {text} {what}: correct \
                 or remove it to open them"
            )));
            self.settings.closing_key.get_or_insert_with(|| name.to_owned());
            return;
        }
        let message = match key.default {
            "" => format!("data.{name}: {text} {what}: it has no effect"),
            default => {
                format!("data.{name}: {text} {what}: the default {} is used", shorten(default))
            }
        };
        self.notes.push(Note::warning(message));
    }
}

/// The keys about tracing, whose order does not matter.
fn apply_tracing(settings: &mut Settings, notes: &mut Vec<Note>) {
    let tracing = &settings.tracing;
    settings.defaults.tracing = tracing.policy();
    settings.defaults.policies.tracing = tracing.is_enabled.then(|| tracing.policy());
    if tracing.is_enabled && tracing.exporter.host.is_empty() {
        notes.push(Note::warning(
            "data.enable-opentelemetry: spans are exported nowhere without otlp-collector-host: set it",
        ));
    }
}

/// proxy-set-headers and add-headers: each entry of the map that they name.
fn read_headers(settings: &mut Settings, all: &Maps, notes: &mut Vec<Note>) {
    let mut entries = |from: &Option<ObjectKey>, name: &str| -> Vec<(HeaderName, String, String)> {
        let Some(key) = from else { return Vec::new() };
        let Some(map) = all.get(key) else {
            let message = format!("data.{name}: ConfigMap {key} does not exist: create it");
            notes.push(Note::warning(message));
            return Vec::new();
        };
        let mut good = Vec::new();
        for (header, value) in &map.data {
            match HeaderName::parse(header) {
                Ok(parsed) => good.push((parsed, header.clone(), value.trim().to_owned())),
                Err(why) => {
                    notes.push(Note::warning(format!("data.{name}: {key}: {why}: left out")))
                }
            }
        }
        good
    };
    let requests = entries(&settings.request_headers_from, "proxy-set-headers");
    let responses = entries(&settings.response_headers_from, "add-headers");
    for (name, header, value) in requests {
        match Template::parse(value) {
            Ok(value) => {
                settings.defaults.policies.request_headers.push(RequestHeader { name, value });
            }
            Err(why) => notes
                .push(Note::warning(format!("data.proxy-set-headers: {header}: {why}: left out"))),
        }
    }
    for (name, header, value) in responses {
        let value = match value.contains('$') {
            true => Err("variables are not expanded in headers of responses".to_owned()),
            false => HeaderValue::parse(value).map_err(|why| why.to_string()),
        };
        match value {
            Ok(value) => {
                settings.defaults.policies.response_headers.push(ResponseHeader { name, value })
            }
            Err(why) => {
                notes.push(Note::warning(format!("data.add-headers: {header}: {why}: left out")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::Defaults;
    use oxigress_core::model::policy::{Limits, Proxy};
    use oxigress_core::model::{Algorithm, RedirectCode};
    use std::sync::Arc;

    fn parsed(data: &[(&str, &str)]) -> (Settings, Vec<Note>) {
        let data = data.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        parse(Some(&ConfigMap { data }), &Maps::new())
    }

    #[test]
    fn a_value_that_does_not_convert_leaves_the_others_alone() {
        let (settings, notes) = parsed(&[
            ("ssl-redirect", "maybe"),
            ("http-redirect-code", "307"),
            ("proxy-body-size", "8 megabytes"),
            ("proxy-read-timeout", "600"),
            ("keep-alive", "75s"),
            ("keep-alive-requests", "5"),
        ]);
        assert!(settings.ssl_redirect);
        assert_eq!(settings.http_redirect_code, RedirectCode::TemporaryRedirect);
        let proxy = settings.defaults.policies.proxy.unwrap();
        assert_eq!((proxy.max_body_bytes, proxy.read_timeout_seconds), (None, Some(600)));
        assert_eq!(settings.static_config.number("keep-alive-requests"), 5);
        assert_eq!(settings.static_config.number("keep-alive"), 75);
        assert_eq!(notes.len(), 3, "{notes:?}");
    }

    #[test]
    fn a_ticket_key_is_taken_by_its_length_and_never_repeated() {
        let name = "ssl-session-ticket-key";
        let (short, long) = ("A".repeat(64), format!("{}=", "B".repeat(107).replace("BBB", "AAA")));
        for good in [short.clone(), long, format!("{}\n{}\n", &short[..60], &short[60..])] {
            let (settings, notes) = parsed(&[(name, &good)]);
            assert_eq!(notes, [], "{good}");
            assert!(matches!(settings.static_config.text(name).len(), 64 | 108));
        }
        let odd = "*".repeat(64);
        for bad in ["SECRETKEY", &"SECRETKEY".repeat(8), &format!("{short}="), &odd] {
            let (settings, notes) = parsed(&[(name, bad)]);
            assert_eq!(settings.static_config.text(name), "");
            let [note] = &notes[..] else { panic!("{notes:?}") };
            let note = format!("{note:?}");
            assert!(note.contains("48 or 80 bytes") && note.contains(name), "{note}");
            assert!(!note.contains("SECRET") && !note.contains("***"), "{note}");
        }
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
        let static_config = settings.static_config;
        assert_eq!(static_config.text("proxy-stream-timeout"), "5m");
        assert_eq!(static_config.number("proxy-stream-responses"), 0);
        assert!(!static_config.flag("proxy-stream-next-upstream"));
        assert_eq!(static_config.text("proxy-stream-next-upstream-timeout"), "600s");
        assert_eq!(static_config.number("proxy-stream-next-upstream-tries"), 3);
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
    fn what_protects_and_cannot_be_read_closes() {
        for (key, value) in [
            ("whitelist-source-range", "10.0.0.0/8, ten"),
            ("denylist-source-range", "x"),
            ("block-cidrs", "10.0.0.0/33"),
            ("block-user-agents", "~(unclosed"),
            ("global-auth-url", "auth.test/check"),
        ] {
            let (settings, notes) = parsed(&[(key, value)]);
            assert_eq!(settings.closing_key.as_deref(), Some(key));
            assert_eq!(notes.len(), 1);
            assert_eq!(parsed(&[(key, "")]).0, Settings::default(), "{key}");
        }
        let (settings, notes) = parsed(&[("whitelist-source-range", "10.0.0.0/8,::1")]);
        assert_eq!((settings.closing_key, notes.len()), (None, 0));
        assert_eq!(settings.defaults.policies.access.unwrap().allow.unwrap().len(), 2);
    }

    #[test]
    fn global_authentication_is_every_location_s_and_closes_if_it_cannot_be_read() {
        let url = ("global-auth-url", "http://auth.test:8080/check");
        let (settings, notes) = parsed(&[
            url,
            ("global-auth-method", "HEAD"),
            ("global-auth-response-headers", "X-User, X-Group"),
            ("global-auth-cache-key", "$http_authorization"),
        ]);
        assert_eq!(notes, []);
        let external = settings.defaults.policies.access.unwrap().external.unwrap();
        assert_eq!(external.to.backend.as_str(), "//url/http/auth.test/8080");
        assert_eq!(
            (external.method.as_deref(), external.response_headers.len()),
            (Some("HEAD"), 2)
        );
        assert_eq!(external.cache.unwrap().valid[0].seconds, 300);
        for odd in [("global-auth-response-headers", "a b"), ("global-auth-cache-duration", "5")] {
            assert_eq!(parsed(&[url, odd]).0.closing_key.as_deref(), Some(odd.0));
        }
        let (settings, _) = parsed(&[("global-auth-signin", "http://auth.test/signin")]);
        assert_eq!(settings.defaults, Defaults::default(), "nothing without global-auth-url");
    }

    #[test]
    fn conditions_of_retries_are_those_of_the_annotation() {
        let all = "error timeout invalid_header http_500 http_502 http_503 http_504 http_403 http_404 http_429 \
                   non_idempotent";
        let single = all.split_whitespace();
        for text in single.chain([all, "off", "error off", "error  http_502 error"]) {
            let (settings, notes) = parsed(&[("proxy-next-upstream", text)]);
            assert_eq!(notes, [], "{text}");
            let found = settings.defaults.policies.proxy.unwrap().next_upstream;
            assert_eq!(found, crate::grammar::retries::conditions(text), "{text}");
        }
        for text in ["http_599", "error,timeout", "http500"] {
            let (settings, notes) = parsed(&[("proxy-next-upstream", text)]);
            assert_eq!((settings, notes.len()), (Settings::default(), 1), "{text}");
        }
    }

    #[test]
    fn networks_that_are_none_are_not_everybody() {
        let (settings, notes) = parsed(&[("proxy-real-ip-cidr", "10.0.0.0/88")]);
        assert_eq!(settings.static_config.list("proxy-real-ip-cidr"), Vec::<String>::new());
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn what_is_not_supported_says_so_unless_it_is_off() {
        assert_eq!(parsed(&[("enable-opentelemetry", "false"), ("use-geoip2", "0")]).1, []);
        let (settings, notes) =
            parsed(&[("use-geoip2", "true"), ("lua-shared-dicts", "a: 5"), ("no-such-key", "x")]);
        assert_eq!(settings, Settings::default());
        assert_eq!(notes.len(), 3, "{notes:?}");
    }

    #[test]
    fn the_default_written_out_changes_nothing() {
        for key in keys::all().filter(|key| !key.default.is_empty()) {
            let (settings, notes) = parsed(&[(key.name, key.default)]);
            assert_eq!((settings, notes), (Settings::default(), vec![]), "{}", key.name);
        }
    }

    /// `Reading::take` leaves out what equals the default of a row, so the functions of the rows are asked here.
    #[test]
    fn rows_settings_and_nginx_conf_have_the_same_defaults() {
        let mut different = Vec::new();
        for key in keys::all().filter(|key| !key.default.is_empty()) {
            let (How::Data(take) | How::Protecting(take) | How::Admission(take)) = &key.how else {
                continue;
            };
            let mut settings = Settings::default();
            let taken = take(&mut settings, &key.default_value());
            let policies = &mut settings.defaults.policies;
            // Rates of 0 and an empty list of statuses are no limit and no errors.
            let unlimited = Limits {
                response_rate: policies.limits.as_ref().and_then(|limits| limits.response_rate),
                response_rate_after: policies
                    .limits
                    .as_ref()
                    .and_then(|all| all.response_rate_after),
                ..Limits::default()
            };
            let is_zero = |rate: Option<u64>| rate.unwrap_or_default() == 0;
            policies.limits.take_if(|limits| {
                is_zero(limits.response_rate)
                    && is_zero(limits.response_rate_after)
                    && *limits == unlimited
            });
            policies.errors.take_if(|errors| errors.codes.is_empty() && !errors.own_only);
            let proxy = policies.proxy.take().unwrap_or_default();
            let is_known = proxy == Proxy::default() || is_in_conf(key.name, key.default);
            if matches!(external_auth::of_texts(&settings.global_auth), Ok(None)) {
                settings.global_auth.clear();
            }
            if taken.is_err() || settings != Settings::default() || !is_known {
                different.push((key.name, key.default, taken));
            }
        }
        assert_eq!(different, []);
    }

    /// Whether each directive that the key's name means has the default in conf/nginx.conf, unless that is computed.
    fn is_in_conf(name: &str, default: &str) -> bool {
        let conf = include_str!("../../../conf/nginx.conf");
        let what = match name {
            "proxy-body-size" => {
                return conf.contains(&format!(" client_max_body_size {default};"));
            }
            "proxy-redirect-from" => "redirect".to_owned(),
            "proxy-buffers-number" => "buffers".to_owned(),
            _ => name.trim_start_matches("proxy-").replace('-', "_"),
        };
        let defaults = ["proxy", "grpc", "fastcgi"].map(|protocol| {
            let directive = format!("{protocol}_{what} ");
            // The first one is the server's; locations of our own have others.
            conf.lines().find_map(|line| line.trim().strip_prefix(&directive))
        });
        let is_equal = |value: &str| {
            let value = value.trim_end_matches(';');
            let value = match &*what {
                "buffers" => value.split(' ').next().unwrap_or_default(),
                _ => value,
            };
            value.starts_with("{{") || value == default || value.strip_suffix('s') == Some(default)
        };
        defaults[0].is_some() && defaults.into_iter().flatten().all(is_equal)
    }

    #[test]
    fn headers_come_from_the_maps_that_are_named() {
        let object = |data: &[(&str, &str)]| {
            let data = data.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            Arc::new(ConfigMap { data })
        };
        let key = |name| ObjectKey::new("other", name);
        let all = Maps::from([
            (key("up"), object(&[("X-A", "v $host"), ("X B", "x"), ("X-C", "$nginx_version")])),
            (key("down"), object(&[("X-D", "y"), ("X-E", "$host")])),
        ]);
        let main = object(&[("proxy-set-headers", "other/up"), ("add-headers", "other/down")]);
        let (settings, notes) = parse(Some(&main), &all);
        assert_eq!(settings.defaults.policies.request_headers.len(), 1);
        assert_eq!(settings.defaults.policies.response_headers.len(), 1);
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(settings.is_from(&[key("down")].into()) && !settings.is_from(&[key("x")].into()));
        let (_, notes) = parse(Some(&main), &Maps::new());
        assert_eq!(notes.len(), 2);
    }
}
