//! What clients and endpoints speak, through nginx as it is shipped: conf/nginx.conf and the module.

#[path = "protocols/changes.rs"]
mod changes;
#[path = "protocols/fastcgi.rs"]
mod fastcgi;
#[path = "protocols/grpc.rs"]
mod grpc;
#[path = "protocols/http2.rs"]
mod http2;
#[path = "protocols/uploads.rs"]
mod uploads;
#[path = "protocols/websocket.rs"]
mod websocket;
