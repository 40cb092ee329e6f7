//! `ingress_draining FILE`: nginx is about to end. While the file is there clients are told to use their connections no
//! more, so that few are idle when nginx closes them: a request that meets the close on its way is lost.
//!
//! A file, because its writer, the nginx role, speaks to no endpoint, and stock nginx sees it too (`if (-f FILE)`). Each
//! worker looks on its timer, not for each request.

use nginx::Request;

/// The answer to this request is the last one of its connection: `Connection: close`. One of HTTP/2 gets a GOAWAY
/// with the next request, which is answered too.
pub fn send_away(request: &Request) {
    request.set_keepalive(false);
    if request.is_http2() {
        // nginx compares the requests of a connection with this setting of its server, and says GOAWAY above it. The
        // worker's own copy, of a configuration that has nothing before it but its end.
        request.end_connections_of_server();
    }
}
