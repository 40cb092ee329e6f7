//! Directives about headers.
//!
//! Source:  ngx_http_proxy_module, ngx_http_headers_module, headers-more; the facts of docs/snippets.md.

use super::values::{Not, Result, impossible};
use oxigress_core::http::header::{is_alike, is_managed, is_reserved};
use oxigress_core::model::policy::{
    ConnectionHeader, EditAction, HeaderName, Policies, Proxy, RequestHeader, ResponseEdit,
    Template,
};

/// Most changes of the headers of one location.
const MOST: usize = 200;

/// `proxy_set_header`.
pub fn request(name: &str, value: &str, policies: &mut Policies) -> Result {
    let is = |known: &str| is_alike(name.as_bytes(), known.as_bytes());
    let own = "the gateway sends it of itself";
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
        "" if is_managed(name.as_bytes()) => return Err(Not::Needed(own)),
        _ => {}
    }
    if is("host") {
        policies.upstream_host = Some(Template::parse(value)?).filter(|_| !value.is_empty());
        return Ok(());
    }
    free(name)?;
    if policies.request_headers.len() + policies.beside_own_headers.len() >= MOST {
        return impossible("more than 200 headers are too many");
    }
    let name = HeaderName::parse(name)?;
    let value = match Template::parse(value) {
        Ok(value) => value,
        Err(why) => {
            if !is_managed(name.as_str().as_bytes()) {
                // The client's own must not stand in its place.
                policies.request_headers.push(RequestHeader { name, value: Template::empty() });
            }
            return impossible(format!("{why}: no such header is sent"));
        }
    };
    let mut earlier = policies.request_headers.iter();
    let is_second =
        earlier.any(|earlier| is_alike(earlier.name.as_str().as_bytes(), name.as_str().as_bytes()));
    let header = RequestHeader { name, value };
    match is_managed(header.name.as_str().as_bytes()) {
        true => policies.beside_own_headers.push(header),
        false if is_second && header.value.as_str().is_empty() => {}
        false if is_second => policies.added_request_headers.push(header),
        false => policies.request_headers.push(header),
    }
    Ok(())
}

/// `add_header`.
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

/// `proxy_hide_header`.
pub fn hide(name: &str, policies: &mut Policies) -> Result {
    free(name)?;
    push(policies, [edit(name, EditAction::Hide)?])
}

/// `more_set_headers` or `more_clear_headers`.
pub fn more(sets: bool, words: &[&str], policies: &mut Policies) -> Result {
    let (mut edits, mut statuses) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-s" => {
                let codes = words.next().ok_or(Not::Known)?.split([' ', ',']);
                for code in codes.filter(|code| !code.is_empty()) {
                    statuses.push(code.parse().map_err(|_| Not::Known)?);
                }
            }
            flag if flag.starts_with('-') => {
                return impossible(format!("the flag {flag} is not in the dialect"));
            }
            word => {
                let (name, value) = word.split_once(':').unwrap_or((word, ""));
                let (name, value) = (name.trim(), value.trim());
                free(name)?;
                let action = if sets { EditAction::Set } else { EditAction::Remove };
                let value = if sets { Template::parse(value)? } else { Template::empty() };
                edits.push(ResponseEdit { value, ..edit(name, action)? });
            }
        }
    }
    let edits = edits.into_iter().map(|edit| ResponseEdit { statuses: statuses.clone(), ..edit });
    push(policies, edits)
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
        return impossible("more than 200 changes of headers are too many");
    }
    Ok(())
}

fn free(name: &str) -> Result {
    match is_reserved(name.as_bytes()) {
        true => impossible(format!("{name} frames or routes messages")),
        false => Ok(()),
    }
}

/// What headers-more changes comes before what `add_header` adds.
pub fn order(policies: &mut Policies) {
    policies.response_edits.sort_by_key(|edit| match edit.action {
        EditAction::Hide => 0,
        EditAction::Set | EditAction::Remove => 1,
        EditAction::Add => 2,
    });
}
