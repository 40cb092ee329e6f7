//! TCP and UDP, and texts for nginx.conf.

use crate::form::Form;
use crate::key::{How, Key, key};

const RAW: Form = Form::Text("text", |text| Some(text.to_owned()));
const SNIPPET: How = How::Unsupported(
    "raw text never gets into nginx.conf: look for a key or an annotation that says it",
);

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("proxy-stream-timeout", Form::Time, "600s", How::Conf),
    key("proxy-stream-next-upstream", Form::Flag, "true", How::Conf),
    key("proxy-stream-next-upstream-timeout", Form::Time, "600s", How::Conf),
    key("proxy-stream-next-upstream-tries", Form::Number(0, 65_535), "3", How::Conf),
    key("proxy-stream-responses", Form::Number(0, 65_535), "1", How::Conf),
    key("main-snippet", RAW, "", SNIPPET),
    key("http-snippet", RAW, "", SNIPPET),
    key("server-snippet", super::access::SNIPPET, "", How::Protecting(|to, v| { to.snippets.server = v.text().to_owned(); Ok(()) })),
    key("location-snippet", super::access::SNIPPET, "", How::Protecting(|to, v| { to.snippets.location = v.text().to_owned(); Ok(()) })),
    key("stream-snippet", RAW, "", SNIPPET),
];
