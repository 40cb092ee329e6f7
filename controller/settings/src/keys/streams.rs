//! TCP and UDP, and texts for nginx.conf.

use super::access::SNIPPET;
use crate::form::Form;
use crate::key::{How, Key, key};

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("proxy-stream-timeout", Form::Time, "600s", How::Conf),
    key("proxy-stream-next-upstream", Form::Flag, "true", How::Conf),
    key("proxy-stream-next-upstream-timeout", Form::Time, "600s", How::Conf),
    key("proxy-stream-next-upstream-tries", Form::Number(0, 65_535), "3", How::Conf),
    key("proxy-stream-responses", Form::Number(0, 65_535), "1", How::Conf),
    key("main-snippet", SNIPPET, "", How::Named(|to, v| { to.snippets.main = v.text().to_owned(); Ok(()) })),
    key("http-snippet", SNIPPET, "", How::Protecting(|to, v| { to.snippets.http = v.text().to_owned(); Ok(()) })),
    key("server-snippet", SNIPPET, "", How::Protecting(|to, v| { to.snippets.server = v.text().to_owned(); Ok(()) })),
    key("location-snippet", SNIPPET, "", How::Protecting(|to, v| { to.snippets.location = v.text().to_owned(); Ok(()) })),
    key("stream-snippet", SNIPPET, "", How::Named(|to, v| { to.snippets.stream = v.text().to_owned(); Ok(()) })),
];
