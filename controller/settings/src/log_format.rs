//! `log-format-*`: text and variables of an allow list, quoted anew.
//!
//! The reference puts the text between single quotes as it is; nginx then reads backslashes in it. So they are read
//! here as nginx would, and what comes out is quoted again.

use oxigress_core::text::template::{self, Part};

/// Variables of requests and sessions that a log may have, beside those of [`template::is_allowed`].
const MORE: [&str; 31] = [
    "body_bytes_sent",
    "bytes_received",
    "bytes_sent",
    "connection",
    "connection_requests",
    "connection_time",
    "gzip_ratio",
    "msec",
    "nginx_version",
    "pid",
    "pipe",
    "protocol",
    "proxy_alternative_upstream_name",
    "request_completion",
    "request_length",
    "request_time",
    "session_time",
    "ssl_curve",
    "ssl_preread_server_name",
    "ssl_session_reused",
    "status",
    "time_iso8601",
    "time_local",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_connect_time",
    "upstream_header_time",
    "upstream_response_length",
    "upstream_response_time",
    "upstream_status",
];

/// The longest format that is read.
const MAX_BYTES: usize = 8 * 1024;

/// The format of requests, quoted for nginx.conf.
pub fn http(text: &str) -> Option<String> {
    quoted(text, |name| {
        let is_more = MORE.contains(&name) && !matches!(name, "bytes_received" | "protocol");
        let is_stream_only = matches!(name, "session_time" | "ssl_preread_server_name");
        let is_sent = ["sent_http_", "upstream_http_"].iter().any(|p| name.starts_with(p));
        is_more && !is_stream_only || is_sent || template::is_allowed(name.as_bytes())
    })
}

/// The format of sessions, quoted for nginx.conf.
pub fn stream(text: &str) -> Option<String> {
    quoted(text, |name| {
        let is_both = MORE.contains(&name)
            && !name.starts_with("request_")
            && !matches!(
                name,
                "body_bytes_sent"
                    | "gzip_ratio"
                    | "pipe"
                    | "proxy_alternative_upstream_name"
                    | "connection_requests"
                    | "connection_time"
                    | "ssl_curve"
                    | "ssl_session_reused"
                    | "upstream_header_time"
                    | "upstream_response_length"
                    | "upstream_response_time"
                    | "upstream_status"
            );
        let is_address = matches!(
            name,
            "binary_remote_addr"
                | "hostname"
                | "proxy_protocol_addr"
                | "proxy_protocol_port"
                | "proxy_protocol_server_addr"
                | "proxy_protocol_server_port"
                | "realip_remote_addr"
                | "realip_remote_port"
                | "remote_addr"
                | "remote_port"
                | "server_addr"
                | "server_port"
        );
        is_both || is_address
    })
}

fn quoted(text: &str, is_allowed: impl Fn(&str) -> bool) -> Option<String> {
    if text.is_empty() || text.len() > MAX_BYTES {
        return None;
    }
    let text = with_known_names(unescaped(text)?);
    for part in template::parts(text.as_bytes()) {
        let is_fine = match part {
            Part::Literal(literal) => !literal.contains(&b'$'),
            Part::Variable(name) => is_allowed(str::from_utf8(name).ok()?),
            Part::Capture(_) => false,
        };
        if !is_fine {
            return None;
        }
    }
    Some(match text.len() > LONGEST_WORD {
        true => in_words(&text),
        false => quote(&text),
    })
}

/// The text with nginx's and our names of variables in place of those that stand for them.
fn with_known_names(text: String) -> String {
    let known = |name: &[u8]| template::alias(&name.to_ascii_lowercase()).to_vec();
    let is_other =
        |part| matches!(part, Part::Variable(name) if !known(name).eq_ignore_ascii_case(name));
    if !template::parts(text.as_bytes()).any(is_other) {
        return text;
    }
    let mut all = String::with_capacity(text.len());
    for part in template::parts(text.as_bytes()) {
        match part {
            Part::Literal(literal) => all += &String::from_utf8_lossy(literal),
            Part::Variable(name) => {
                all += &format!("${{{}}}", String::from_utf8_lossy(&known(name)))
            }
            Part::Capture(number) => all += &format!("${{{number}}}"),
        }
    }
    all
}

/// Most bytes between two quotes: nginx reads at most 4,096 with the backslashes, and puts the words of a format together.
const LONGEST_WORD: usize = 2_000;

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A long text as several words; a variable stands in one of them.
fn in_words(text: &str) -> String {
    let mut words = vec![String::new()];
    let mut add = |piece: &str| match words.last_mut() {
        Some(last) if last.len() + piece.len() <= LONGEST_WORD => last.push_str(piece),
        _ => words.push(piece.to_owned()),
    };
    for part in template::parts(text.as_bytes()) {
        match part {
            Part::Literal(literal) => {
                let literal = String::from_utf8_lossy(literal);
                literal.chars().for_each(|c| add(c.encode_utf8(&mut [0; 4])));
            }
            Part::Variable(name) => add(&format!("${{{}}}", String::from_utf8_lossy(name))),
            Part::Capture(_) => {}
        }
    }
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

/// The text as nginx reads it between quotes; `None` if it has control bytes then.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(next @ ('\\' | '"' | '\''))) => {
                out.push(*next);
                chars.next();
            }
            ('\\', Some('t' | 'r' | 'n')) => return None,
            (c, _) if c.is_control() => return None,
            (c, _) => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_quoted_and_backslashes_are_read_as_nginx_reads_them() {
        let text = r#"{"a": "$status", "b": "$request_time", "c": {"d": "${http_x_y}"}}"#;
        assert_eq!(http(text).unwrap(), format!("'{text}'"));
        assert_eq!(http(r#"\"$status\" it's \\ \x"#).unwrap(), r#"'"$status" it\'s \\ \\x'"#);
    }

    #[test]
    fn a_long_text_is_cut_into_words_that_nginx_reads() {
        let text = "it's $status ".repeat(600);
        let words = http(&text).unwrap();
        assert!(words.split("' '").all(|word| word.len() < 4_000), "{words}");
        let joined = words.replace("' '", "").replace("\\'", "'").replace("${status}", "$status");
        assert_eq!(joined, format!("'{text}'"));
    }

    #[test]
    fn variables_that_a_log_may_not_have_are_refused() {
        for text in [
            "$ssl_client_raw_cert",
            "$realpath_root",
            "a$",
            "$1",
            "$proxy_host$1",
            "",
            "a\nb",
            r"a\n",
        ] {
            assert_eq!(http(text), None, "{text:?}");
        }
        assert!(http("$sent_http_x $upstream_http_y $arg_z $namespace $req_id").is_some());
        assert_eq!(http("$session_time"), None);
        assert_eq!(stream("$request_uri"), None);
        assert!(stream("[$remote_addr] $protocol $session_time").is_some());
    }

    #[test]
    fn names_of_the_reference_are_logged_as_what_they_mean_there() {
        let all = "[$proxy_host] $Proxy_Host ${the_real_ip}x $pass_server_port it's";
        let expected = r"'[${proxy_upstream_name}] ${proxy_upstream_name} ${remote_addr}x ${pass_server_port} it\'s'";
        assert_eq!(http(all).unwrap(), expected);
    }

    #[test]
    fn a_quote_cannot_end_the_format() {
        assert_eq!(http("x'; env A; '").unwrap(), r"'x\'; env A; \''");
        assert_eq!(http(r"x\'; env A;").unwrap(), r"'x\'; env A;'");
        assert_eq!(http(r"x\").unwrap(), r"'x\\'");
    }
}
