//! Logs.

use crate::form::{Form, exact_path, host, log_file, log_parameters};
use crate::key::{How, Key, key};
use crate::log_format;

const FILE: Form = Form::Text("/dev/stdout or a file below /var/log", log_file);
const FORMAT: &str = "text in one line, with variables that a log may have";
const LEVELS: Form =
    Form::Word(&["debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"]);

/// Where requests are logged; the reference's file is standard output in its images.
pub const ACCESS_LOG: &str = "/var/log/nginx/access.log";
/// Where nginx writes its error log.
pub const ERROR_LOG: &str = "/var/log/nginx/error.log";

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("access-log-path", FILE, ACCESS_LOG, How::Conf),
    key("http-access-log-path", FILE, "", How::Conf),
    key("stream-access-log-path", FILE, "", How::Conf),
    key("access-log-params", Form::Text("buffer=SIZE, flush=TIME and gzip", log_parameters), "", How::Conf),
    key("disable-access-log", Form::Flag, "false", How::Conf),
    key("disable-http-access-log", Form::Flag, "false", How::Conf),
    key("disable-stream-access-log", Form::Flag, "false", How::Conf),
    key("enable-access-log-for-default-backend", Form::Flag, "false", How::NoEffect("requests that no Ingress takes are always logged")),
    key("enable-auth-access-log", Form::Flag, "false", How::Conf),
    key("skip-access-log-urls", Form::List("request targets as clients send them, without patterns", exact_path), "", How::Conf),
    key("log-format-upstream", Form::Text(FORMAT, log_format::http), "", How::Conf),
    key("log-format-escape-json", Form::Flag, "false", How::Conf),
    key("log-format-escape-none", Form::Flag, "false", How::Conf),
    key("log-format-stream", Form::Text(FORMAT, log_format::stream), "", How::Conf),
    key("error-log-path", FILE, ERROR_LOG, How::Conf),
    key("error-log-level", LEVELS, "notice", How::Conf),
    key("enable-syslog", Form::Flag, "false", How::Conf),
    key("syslog-host", Form::Text("a host name or an IP address", host), "", How::Conf),
    key("syslog-port", Form::Number(1, 65535), "514", How::Conf),
];
