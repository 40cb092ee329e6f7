//! Processes, buffers, timeouts of clients.

use crate::form::{
    Form, affinity, any, body_buffer, buffer, buffers, header_name, media_type, network, workers,
};
use crate::key::{How, Key, key};

const SECONDS: Form = Form::Number(0, 31_536_000);
const HASH: Form = Form::Number(1, 65_536);
/// As large as nginx takes one, and large enough for its own names.
const BUCKET: Form = Form::Number(64, 65_472);
const OBSOLETE: How = How::NoEffect(
    "nginx has no such setting any more: large-client-header-buffers holds for HTTP/2 too",
);

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("worker-processes", Form::Text("auto or a number from 1 to 512", workers), "auto", How::Conf),
    key("worker-cpu-affinity", Form::Text("auto or masks of 0 and 1", affinity), "", How::Conf),
    key("worker-shutdown-timeout", Form::Time, "240s", How::Conf),
    key("enable-serial-reloads", Form::Flag, "false", How::NoEffect("reloads are so rare that they do not overlap")),
    key("max-worker-connections", Form::Number(0, 1_048_576), "16384", How::Conf),
    key("max-worker-open-files", Form::Number(0, 1_048_576), "0", How::Conf),
    key("enable-multi-accept", Form::Flag, "true", How::Conf),
    key("debug-connections", Form::List("networks", network), "", How::Unsupported("this nginx is built without debug lines: set error-log-level: info")),
    key("reuse-port", Form::Flag, "true", How::Conf),
    key("enable-aio-write", Form::Flag, "true", How::Conf),
    key("keep-alive", SECONDS, "75", How::Conf),
    key("keep-alive-requests", Form::Number(1, 1 << 31), "1000", How::Conf),
    key("client-header-buffer-size", Form::Text("a size from 256 to 1g", buffer), "1k", How::Conf),
    key("client-header-timeout", SECONDS, "60", How::Conf),
    key("large-client-header-buffers", Form::Text("how many buffers and how large, such as 4 8k", buffers), "4 8k", How::Conf),
    key("client-body-buffer-size", Form::Text("a size from 1k to 1g", body_buffer), "8k", How::Conf),
    key("client-body-timeout", SECONDS, "60", How::Conf),
    key("http2-max-concurrent-streams", Form::Number(1, 65_535), "128", How::Conf),
    key("http2-max-field-size", Form::Size, "", OBSOLETE),
    key("http2-max-header-size", Form::Size, "", OBSOLETE),
    key("http2-max-requests", Form::Number(0, 1 << 31), "0", How::NoEffect("nginx has no such setting any more: keep-alive-requests holds for HTTP/2 too")),
    key("grpc-buffer-size-kb", Form::Number(0, 65_536), "0", How::Conf),
    key("map-hash-bucket-size", BUCKET, "64", How::Conf),
    key("server-name-hash-max-size", HASH, "1024", How::NoEffect("hosts are not in nginx.conf")),
    key("server-name-hash-bucket-size", Form::Number(0, 65_536), "0", How::NoEffect("hosts are not in nginx.conf")),
    key("proxy-headers-hash-max-size", HASH, "512", How::Conf),
    key("proxy-headers-hash-bucket-size", BUCKET, "64", How::Conf),
    key("variables-hash-bucket-size", BUCKET, "256", How::Conf),
    key("variables-hash-max-size", HASH, "2048", How::Conf),
    key("default-type", Form::Text("a media type", media_type), "text/html", How::Conf),
    key("server-tokens", Form::Flag, "false", How::Conf),
    key("allow-backend-server-header", Form::Flag, "false", How::Conf),
    key("hide-headers", Form::List("header names", header_name), "", How::Conf),
    key("enable-underscores-in-headers", Form::Flag, "false", How::Conf),
    key("ignore-invalid-headers", Form::Flag, "true", How::Conf),
    key("lua-shared-dicts", Form::Text("text", any), "", How::NoEffect("there is no Lua: --zone-size is the shared memory")),
];
