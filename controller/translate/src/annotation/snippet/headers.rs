//! Directives about headers.
//!
//! Source:  ngx_http_proxy_module, ngx_http_headers_module, headers-more; the facts of docs/snippets.md.

use super::values::{Not, Result, impossible, millis};
use oxigress_core::http::header::{is_alike, is_replaced, is_reserved};
use oxigress_core::model::policy::{
    ConnectionHeader, EditAction, HeaderName, InputEdit, Policies, Proxy, RequestHeader,
    ResponseEdit, Template,
};

use oxigress_settings::grammar::directives::{self, Directive};

/// Most changes of the headers of one location.
const MOST: usize = 200;
/// Most statuses that one directive names.
const MOST_STATUSES: usize = 20;

const TOO_MANY: &str = "more than 200 changes of headers are too many";

/// Takes over a `proxy_set_header` or `grpc_set_header` directive.
pub fn request(name: &str, value: &str, policies: &mut Policies) -> Result {
    let is = |known: &str| is_alike(name.as_bytes(), known.as_bytes());
    let own = "the gateway sets this header itself";
    if is("connection") {
        let connection = match value.to_ascii_lowercase().as_str() {
            "close" => ConnectionHeader::Close,
            "keep-alive" => ConnectionHeader::KeepAlive,
            "" | "upgrade" | "$connection_upgrade" | "$http_connection" => {
                return Err(Not::Needed(own));
            }
            _ => return impossible("it is close, keep-alive or upgrade"),
        };
        policies.proxy.get_or_insert_with(Proxy::default).connection = Some(connection);
        return Ok(());
    }
    match value {
        "$http_upgrade" if is("upgrade") => return Err(Not::Needed(own)),
        "" if is_replaced(name.as_bytes()) => return Err(Not::Needed(own)),
        _ => {}
    }
    if is("host") {
        policies.upstream_host = Some(Template::parse(value)?).filter(|_| !value.is_empty());
        return Ok(());
    }
    free(name)?;
    let Policies { request_headers, beside_own_headers, added_request_headers, .. } = policies;
    if request_headers.len() + beside_own_headers.len() + added_request_headers.len() >= MOST {
        return Err(Not::Open("more than 200 headers are too many".into()));
    }
    let name = HeaderName::parse(name)?;
    let value = match Template::parse(value) {
        Ok(value) => value,
        Err(why) => {
            withhold(name, policies);
            return impossible(format!("{why}: no such header is sent"));
        }
    };
    let mut earlier = policies.request_headers.iter();
    let is_second =
        earlier.any(|earlier| is_alike(earlier.name.as_str().as_bytes(), name.as_str().as_bytes()));
    let header = RequestHeader { name, value };
    match is_replaced(header.name.as_str().as_bytes()) {
        true => policies.beside_own_headers.push(header),
        false if is_second && header.value.as_str().is_empty() => {}
        false if is_second => policies.added_request_headers.push(header),
        false => policies.request_headers.push(header),
    }
    Ok(())
}

/// Takes over a `proxy_set_header` directive about an auth subrequest.
pub fn of_auth(name: &str, value: &str, headers: &mut Vec<RequestHeader>) -> Result {
    let is = |known: &str| is_alike(name.as_bytes(), known.as_bytes());
    let is_said = match value {
        "" => ["connection", "content-length", "upgrade", "x-forwarded-proto"].into_iter().any(is),
        _ => false,
    };
    if is_said {
        return Err(Not::Needed("no auth request has this header"));
    }
    free(name)?;
    if headers.len() >= MOST {
        return impossible("more than 200 headers are too many");
    }
    headers.push(RequestHeader { name: HeaderName::parse(name)?, value: Template::parse(value)? });
    Ok(())
}

/// Keeps the client's own header from standing in the place of one that is not set.
fn withhold(name: HeaderName, policies: &mut Policies) {
    let is =
        |other: &RequestHeader| is_alike(other.name.as_str().as_bytes(), name.as_str().as_bytes());
    if !is_replaced(name.as_str().as_bytes()) && !policies.request_headers.iter().any(is) {
        policies.request_headers.push(RequestHeader { name, value: Template::empty() });
    }
}

/// Takes from clients the headers that `proxy_set_header` and `grpc_set_header` would set, in blocks too, where these are not
/// carried out. Answers whether there was room for all of them.
pub fn withhold_all(directives: &[Directive], policies: &mut Policies) -> bool {
    directives::each(directives, &mut |directive| {
        let name = directive.arguments.first().filter(|_| sets_request(&directive.name));
        let name = name.filter(|name| !is_reserved(name.as_bytes()));
        if let Some(name) = name.and_then(|name| HeaderName::parse(name.as_str()).ok()) {
            withhold(name, policies);
        }
    });
    policies.request_headers.len() <= MOST
}

/// Whether a directive sets a header for endpoints.
pub fn sets_request(name: &str) -> bool {
    matches!(name, "proxy_set_header" | "grpc_set_header")
}

/// Takes over a `more_set_input_headers` or `more_clear_input_headers` directive.
pub fn input(sets: bool, words: &[&str], policies: &mut Policies) -> Result {
    let (mut edits, mut replaces_only) = (Vec::new(), false);
    let room = MOST.saturating_sub(policies.input_edits.len());
    for word in words {
        match *word {
            "-r" if sets => replaces_only = true,
            flag if flag.starts_with('-') => {
                return impossible(format!("the flag {flag} is not supported in snippets"));
            }
            word => {
                let (name, value) = name_and_value(word);
                free(name)?;
                if is_replaced(name.as_bytes()) {
                    return impossible(format!("the gateway sends {name} of itself"));
                }
                if sets && name.ends_with('*') {
                    return impossible("a star stands for more letters only of what is cleared");
                }
                if edits.len() == room {
                    return Err(Not::Open(TOO_MANY.to_owned()));
                }
                let value = if sets { Template::parse(value)? } else { Template::empty() };
                edits.push((HeaderName::parse(name)?, value));
            }
        }
    }
    let edits = edits.into_iter();
    policies.input_edits.extend(edits.map(|(name, value)| InputEdit {
        name,
        value,
        replaces_only,
    }));
    Ok(())
}

/// A header of headers-more.
fn name_and_value(word: &str) -> (&str, &str) {
    let (name, value) = word.split_once(':').unwrap_or((word, ""));
    (name.trim(), value.trim())
}

/// Takes over an `expires` directive.
pub fn expires(words: &[&str], policies: &mut Policies) -> Result {
    let (action, date, control) = match words {
        // In the place of what is inherited: no date.
        ["off"] => (EditAction::Date, String::new(), None),
        ["epoch"] => {
            (EditAction::Set, "Thu, 01 Jan 1970 00:00:01 GMT".to_owned(), Some("no-cache".into()))
        }
        ["max"] => (
            EditAction::Set,
            "Thu, 31 Dec 2037 23:55:55 GMT".to_owned(),
            Some("max-age=315360000".into()),
        ),
        ["modified", _] => return impossible("a time after Last-Modified is not known here"),
        [time] if time.starts_with('@') => {
            return impossible("a time of the day is not supported: write how long, such as 12h");
        }
        [time] if time.contains('$') => return impossible("it has no variables here"),
        [time] => {
            let (is_past, time) = match time.strip_prefix('-') {
                Some(time) => (true, time),
                None => (false, time.strip_prefix('+').unwrap_or(time)),
            };
            if time.contains("ms") {
                return impossible("it is whole seconds");
            }
            match (millis(time)? / 1_000, is_past) {
                (seconds @ 1.., true) => {
                    (EditAction::Date, format!("-{seconds}"), Some("no-cache".into()))
                }
                (seconds, _) => {
                    (EditAction::Date, seconds.to_string(), Some(format!("max-age={seconds}")))
                }
            }
        }
        _ => return Err(Not::Known),
    };
    let of = |name, action, value: &str| -> Result<ResponseEdit> {
        let (value, statuses) = (Template::parse(value)?, ResponseEdit::GOOD.to_vec());
        Ok(ResponseEdit { value, statuses, ..edit(name, action)? })
    };
    let mut edits = vec![of(EXPIRES, action, &date)?];
    if let Some(control) = control {
        edits.push(of(CACHE_CONTROL, EditAction::Set, &control)?);
    }
    push(policies, edits)
}

const EXPIRES: &str = "Expires";
const CACHE_CONTROL: &str = "Cache-Control";

/// Reads a directive about headers that a location and an `if` within it may have; `None`: it is another one.
pub fn wherever(name: &str, words: &[&str], policies: &mut Policies) -> Option<Result> {
    Some(match (name, words) {
        ("add_header", [name, value]) => add(name, value, false, policies),
        ("add_header", [name, value, "always"]) => add(name, value, true, policies),
        ("expires", words) => expires(words, policies),
        ("more_set_input_headers", words) => input(true, words, policies),
        ("more_clear_input_headers", words) => input(false, words, policies),
        ("more_set_headers", words) => more(true, words, policies),
        ("more_clear_headers", words) => more(false, words, policies),
        _ => return None,
    })
}

/// Takes over an `add_header` directive.
pub fn add(name: &str, value: &str, always: bool, policies: &mut Policies) -> Result {
    free(name)?;
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let action = match is("last-modified") || is("etag") {
        true => EditAction::Set,
        false => EditAction::Add,
    };
    let statuses = if always { Vec::new() } else { ResponseEdit::GOOD.to_vec() };
    let (name, value) = (HeaderName::parse(name)?, Template::parse(value)?);
    push(policies, [ResponseEdit { name, action, value, statuses }])
}

/// Takes over a `proxy_hide_header` directive.
pub fn hide(name: &str, policies: &mut Policies) -> Result {
    free(name)?;
    push(policies, [edit(name, EditAction::Hide)?])
}

/// Takes over a `proxy_pass_header` directive: [`pass_all`] does what it says.
pub fn pass(name: &str) -> Result {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let is_accelerating = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("x-accel-"));
    match is_accelerating || is("date") || is("server") || is("x-pad") {
        true => impossible("nginx keeps this header of endpoints to itself"),
        false => Ok(()),
    }
}

/// Hides no header that a `proxy_pass_header` names, wherever that stands.
pub fn pass_all(directives: &[Directive], policies: &mut Policies) {
    for directive in directives.iter().filter(|one| one.name == "proxy_pass_header") {
        let [name] = &directive.arguments[..] else { continue };
        let is_it = |edit: &ResponseEdit| {
            edit.action == EditAction::Hide && edit.name.as_str().eq_ignore_ascii_case(name)
        };
        policies.response_edits.retain(|edit| !is_it(edit));
    }
}

/// Takes over a `more_set_headers` or `more_clear_headers` directive.
pub fn more(sets: bool, words: &[&str], policies: &mut Policies) -> Result {
    let (mut edits, mut statuses) = (Vec::new(), Vec::new());
    let room = MOST.saturating_sub(policies.response_edits.len());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-s" => {
                let codes = words.next().ok_or(Not::Known)?.split([' ', ',']);
                for code in codes.filter(|code| !code.is_empty()) {
                    take_status(code, &mut statuses)?;
                }
            }
            flag if flag.starts_with('-') => {
                return impossible(format!("the flag {flag} is not supported in snippets"));
            }
            word => {
                let (name, value) = name_and_value(word);
                free(name)?;
                // Each has the statuses: nothing is made that is not kept.
                if edits.len() == room {
                    return impossible(TOO_MANY);
                }
                let action = if sets { EditAction::Set } else { EditAction::Remove };
                let value = if sets { Template::parse(value)? } else { Template::empty() };
                edits.push(ResponseEdit { value, ..edit(name, action)? });
            }
        }
    }
    let edits = edits.into_iter().map(|edit| ResponseEdit { statuses: statuses.clone(), ..edit });
    push(policies, edits)
}

fn take_status(code: &str, statuses: &mut Vec<u16>) -> Result {
    let is_status = |status: &u16| (100..=599).contains(status);
    let status = code.parse().ok().filter(is_status).ok_or(Not::Known)?;
    if statuses.contains(&status) {
        return Ok(());
    }
    if statuses.len() == MOST_STATUSES {
        return impossible("more than 20 statuses of one directive are too many");
    }
    statuses.push(status);
    Ok(())
}

fn edit(name: &str, action: EditAction) -> Result<ResponseEdit> {
    let name = HeaderName::parse(name)?;
    Ok(ResponseEdit { name, action, value: Template::empty(), statuses: Vec::new() })
}

fn push(policies: &mut Policies, edits: impl IntoIterator<Item = ResponseEdit>) -> Result {
    let before = policies.response_edits.len();
    policies.response_edits.extend(edits);
    if policies.response_edits.len() > MOST {
        policies.response_edits.truncate(before);
        return impossible(TOO_MANY);
    }
    Ok(())
}

fn free(name: &str) -> Result {
    match is_reserved(name.as_bytes()) {
        true => {
            impossible(format!("{name} controls message framing or routing and cannot be changed"))
        }
        false => Ok(()),
    }
}

/// What headers-more changes comes before what `expires` and `add_header` say.
pub fn order(policies: &mut Policies) {
    policies.response_edits.sort_by_key(ResponseEdit::rank);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(result: Result) -> String {
        match result {
            Err(Not::Possible(why)) => why,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn statuses_are_few_and_each_is_kept_once() {
        let mut policies = Policies::default();
        let statuses = |all: std::ops::Range<u16>| {
            all.map(|status| status.to_string()).collect::<Vec<_>>().join(",")
        };
        let twenty = [statuses(400..420), statuses(400..420)].join(" ");
        more(true, &["-s", &twenty, "A: b", "-s", "400"], &mut policies).unwrap();
        assert_eq!(policies.response_edits[0].statuses, (400..420).collect::<Vec<_>>());
        let many = statuses(400..421);
        assert!(why(more(true, &["-s", &many, "A: b"], &mut policies)).contains("20 statuses"));
        for text in ["99", "600", "4x4", "70000"] {
            assert_eq!(more(true, &["-s", text, "A: b"], &mut policies), Err(Not::Known), "{text}");
        }
        assert_eq!(policies.response_edits.len(), 1);
    }

    #[test]
    fn a_location_has_200_changes_of_headers_whatever_they_are() {
        let mut policies = Policies::default();
        let names: Vec<_> = (0..201).map(|number| format!("X-{number}: a")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        assert!(why(more(true, &names, &mut policies)).contains("200 changes"));
        assert!(policies.response_edits.is_empty());
        more(true, &names[..200], &mut policies).unwrap();
        assert!(why(more(true, &names[..1], &mut policies)).contains("200 changes"));

        // Two replace the client's, all others stand beside them.
        for number in 0..200 {
            let name = ["X-A", "X-B"][number % 2];
            request(name, &format!("{number}"), &mut policies).unwrap();
        }
        assert!(policies.added_request_headers.len() > 190);
        assert!(why(request("X-A", "b", &mut policies)).contains("200 headers"));
    }
}
