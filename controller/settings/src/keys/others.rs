//! Compression, and modules that this nginx does not have.

use crate::form::{Form, any, media_types};
use crate::key::{How, Key, key};

const TEXT: Form = Form::Text("text", any);
const TYPES: &str = "application/atom+xml application/javascript application/x-javascript application/json \
    application/rss+xml application/vnd.ms-fontobject application/x-font-ttf application/x-web-app-manifest+json \
    application/xhtml+xml application/xml font/opentype image/svg+xml image/x-icon text/css text/javascript \
    text/plain text/x-component";
const BROTLI_TYPES: &str = "application/xml+rss application/atom+xml application/javascript \
    application/x-javascript application/json application/rss+xml application/vnd.ms-fontobject \
    application/x-font-ttf application/x-web-app-manifest+json application/xhtml+xml application/xml \
    font/opentype image/svg+xml image/x-icon text/css text/javascript text/plain text/x-component";
const GEO: How = How::Unsupported(
    "this nginx has no GeoIP module: let an auth server or the application decide",
);
const WAF: How =
    How::Unsupported("this nginx has no ModSecurity: put a firewall in front or behind");
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("use-gzip", Form::Flag, "false", How::Conf),
    key("gzip-level", Form::Number(1, 9), "1", How::Conf),
    key("gzip-min-length", Form::Number(0, 1 << 31), "256", How::Conf),
    key("gzip-types", Form::Text("media types, with white space between", media_types), TYPES, How::Conf),
    key("gzip-disable", Form::Word(&["msie6"]), "", How::Conf),
    key("enable-brotli", Form::Flag, "false", How::Conf),
    key("brotli-level", Form::Number(0, 11), "4", How::Conf),
    key("brotli-min-length", Form::Number(0, 1 << 31), "20", How::Conf),
    key("brotli-types", Form::Text("media types, with white space between", media_types), BROTLI_TYPES, How::Conf),
    key("use-geoip2", Form::Flag, "false", GEO),
    key("geoip2-autoreload-in-minutes", Form::Number(0, 1 << 31), "0", GEO),
    key("enable-modsecurity", Form::Flag, "false", WAF),
    key("modsecurity-snippet", TEXT, "", WAF),
    key("enable-owasp-modsecurity-crs", Form::Flag, "false", WAF),
];
