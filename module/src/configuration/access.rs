//! Who may use the endpoint, and which bodies it takes.

use crate::configuration::Head;
use crate::configuration::answer::Answer;

/// Over a Unix socket: root and this process's own user. nginx makes the socket file 0666, so the file's
/// mode protects nothing.
///
/// Over TCP, which is on only when the operator says so: what a browser can be made to send is refused
/// (DNS rebinding, forms and scripts of web pages).
pub fn check(head: &Head<'_>) -> Result<(), Answer> {
    if let Some(uid) = head.peer_uid {
        return if uid == 0 || uid == head.own_uid {
            Ok(())
        } else {
            let own = head.own_uid;
            Err(Answer::problem(
                403,
                format!("user {uid} is not allowed: connect as user {own} or root"),
            ))
        };
    }
    if !head.is_from_loopback {
        return Err(Answer::problem(
            403,
            "the endpoint answers to this machine only: connect to 127.0.0.1",
        ));
    }
    if head.is_from_browser {
        return Err(Answer::problem(403, "requests from browsers are refused: use another client"));
    }
    let host = head.host.unwrap_or_default();
    let (name, port) = match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if host.last() != Some(&b']') => (&host[..colon], &host[colon + 1..]),
        _ => (host, &b"80"[..]),
    };
    let is_local =
        [&b"127.0.0.1"[..], b"[::1]", b"localhost"].iter().any(|n| name.eq_ignore_ascii_case(n));
    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
    if is_local && port.is_some() && port == head.local_port {
        Ok(())
    } else {
        Err(Answer::problem(
            403,
            "Host is not 127.0.0.1, [::1] or localhost with this port: use one of these hosts",
        ))
    }
}

/// A body has a length that is known and taken, and is JSON.
pub fn check_body(head: &Head<'_>) -> Result<(), Answer> {
    let limit = head.max_body_bytes;
    match head.content_length {
        None if head.is_chunked => {
            return Err(Answer::problem(
                411,
                "a body needs Content-Length: do not send it in chunks",
            ));
        }
        Some(length) if length > limit => {
            return Err(Answer::problem(
                413,
                format!(
                    "a body of {length} bytes, at most {limit} are taken: send it as several deltas"
                ),
            ));
        }
        _ => {}
    }
    let kind = head.content_type.unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if kind.eq_ignore_ascii_case(b"application/json") {
        Ok(())
    } else {
        Err(Answer::problem(
            415,
            "Content-Type is not application/json: send JSON with Content-Type application/json",
        ))
    }
}
