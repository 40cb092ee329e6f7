//! Parts of an auth server's answer that texts are made of.
//!
//! Source:  ngx_http_upstream_header_variable, ngx_http_upstream_cookie_variable, ngx_http_auth_request_set_variables.

use crate::http::header::is_alike;
use crate::model::policy::script::OF_ANSWER;
use std::borrow::Cow;

/// The value of the variable with this name, of an answer with this status and these headers: `snippet_r_status`,
/// `snippet_r_http_NAME`, `snippet_r_cookie_NAME`. `None`: there is none, or it is no part of an answer.
pub fn part<'h>(
    name: &[u8],
    status: u16,
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
) -> Option<Cow<'h, [u8]>> {
    let name = name.strip_prefix(OF_ANSWER.as_bytes())?;
    if name == b"status" {
        return Some(status.to_string().into_bytes().into());
    }
    if let Some(cookie) = name.strip_prefix(b"cookie_") {
        return headers
            .filter(|(header, _)| header.eq_ignore_ascii_case(b"set-cookie"))
            .find_map(|(_, line)| cookie_value(line, cookie))
            .map(Cow::Borrowed);
    }
    let name = name.strip_prefix(b"http_")?;
    joined(headers.filter(|(header, _)| is_alike(header, name)))
}

/// The values of headers as one; `None`: there are none.
pub fn joined<'h>(
    mut headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
) -> Option<Cow<'h, [u8]>> {
    let (_, first) = headers.next()?;
    let mut all = Cow::Borrowed(first);
    for (_, value) in headers {
        let all = all.to_mut();
        all.extend_from_slice(b", ");
        all.extend_from_slice(value);
    }
    Some(all)
}

/// What a `Set-Cookie` says of a cookie, whose name is compared in any case.
fn cookie_value<'h>(line: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    let start = line.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name));
    let rest = line.get(start?.len()..)?.trim_ascii_start().strip_prefix(b"=")?;
    let end = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
    rest.get(..end).map(<[u8]>::trim_ascii_start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_status_headers_and_cookies() {
        let headers = [
            ("X-Auth-User", "alice"),
            ("x_groups", "a"),
            ("X-Groups", "b"),
            ("Set-Cookie", "other=1"),
            ("Set-Cookie", "Session = abc; Path=/"),
            ("Set-Cookie", "session2=def"),
        ];
        let value = |name: &str| {
            let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let found = part(name.as_bytes(), 202, headers);
            found.map(|value| String::from_utf8(value.into_owned()).unwrap())
        };
        for (name, expected) in [
            ("snippet_r_status", Some("202")),
            ("snippet_r_http_x_auth_user", Some("alice")),
            ("snippet_r_http_x_groups", Some("a, b")),
            ("snippet_r_http_x_auth", None),
            ("snippet_r_cookie_session", Some("abc")),
            ("snippet_r_cookie_session2", Some("def")),
            ("snippet_r_cookie_sess", None),
            ("snippet_l_status", None),
        ] {
            assert_eq!(value(name).as_deref(), expected, "{name}");
        }
    }
}
