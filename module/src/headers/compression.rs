//! Bodies of answers in Brotli (RFC 7932), for clients that take it.
//!
//! Shape:   `ingress_brotli` says what is compressed. The filter stands before nginx's gzip, which
//!          passes over a response that has a `Content-Encoding`: a client that takes both gets
//!          Brotli.
//! Bounds:  memory and time by [`brotli`]; what all compressed answers of a worker take is bounded
//!          beside `ingress_buffers` ([`Encoders`]). An answer for which there is no room goes as
//!          it is.
//! Cost:    none where no server has the directive: the filter is not put into nginx's chains.
//! Source:  ngx_brotli's ngx_http_brotli_filter_module.c, so that its settings keep their meaning.

mod brotli;

use crate::access::buffers::Encoders;
use crate::conf::directive::refuse;
use crate::conf::{Compression, Http};
use crate::headers::compression::brotli::Brotli;
use crate::request::Request;
use nginx::{BodyFilter, Code, Conf, NextFilters, Refused, parse_number};
use oxigress_core::http::encoding::{self, MediaTypes};

/// `ingress_brotli LEVEL MIN_LENGTH TYPE...;`: such responses are compressed.
pub fn ingress_brotli(conf: &mut Conf) -> Result<(), Refused> {
    if conf.server::<Http>().brotli.is_some() {
        return Err(Refused::DUPLICATE);
    }
    let arguments = conf.arguments();
    let [_, level, least, types @ ..] = &arguments[..] else { return Err(Refused::Told) };
    let read = |text: &nginx::Argument| parse_number(text.bytes());
    let (Some(level @ 0..=11), Some(min_length)) = (read(level), read(least)) else {
        return Err(refuse(
            conf,
            "the level is a number from 0 to 11, the least length one of bytes",
        ));
    };
    let types = MediaTypes::new(types.iter().map(|name| name.bytes()));
    let level = u32::try_from(level).unwrap_or_default();
    conf.server::<Http>().brotli = Some(Compression { level, min_length, types });
    Ok(())
}

/// The filter, which stands where nginx's order of modules has it.
pub struct Filter;

static NEXT: NextFilters = NextFilters::new();

impl BodyFilter for Filter {
    const NAME: &'static str = "brotli";
    type Encoder = Brotli;

    fn next() -> &'static NextFilters {
        &NEXT
    }

    fn is_wanted(conf: &mut Conf) -> bool {
        conf.servers().iter().any(|server| server.conf::<Http>().brotli.is_some())
    }

    fn encoder(request: &nginx::Request) -> Result<Option<Brotli>, Code> {
        let Some(settings) = &request.server_conf::<Http>().brotli else { return Ok(None) };
        if !is_compressible(request, settings) {
            return Ok(None);
        }
        // Whoever keeps the answer learns that other clients get another one.
        request.set_gzip_vary(true);
        let Some(seen) = Request::of(request) else { return Ok(None) };
        let takes = |header: &[u8]| encoding::takes(header, b"br");
        if !seen.header(b"accept-encoding").is_some_and(takes) {
            return Ok(None);
        }
        let Some(memory) = Encoders::reserve(&seen, Brotli::bytes(settings.level)) else {
            return Ok(None);
        };
        change_head(request).ok_or(Code::ERROR)?;
        Ok(Some(Brotli::new(settings.level, memory)))
    }
}

/// What kind of response is compressed, whoever asks for it.
fn is_compressible(request: &nginx::Request, settings: &Compression) -> bool {
    let has_encoding = |name: &[u8]| name.eq_ignore_ascii_case(b"content-encoding");
    let length = usize::try_from(request.response_length());
    matches!(request.status(), 200 | 403 | 404)
        && length.map_or(true, |length| length > 0 && length >= settings.min_length)
        && settings.types.has(request.content_type())
        && !request
            .response_headers()
            .any(|it| it.is_there() && has_encoding(it.name()) && !it.value().is_empty())
}

/// The head of a response whose body will be compressed; `None` when memory is out.
fn change_head(request: &nginx::Request) -> Option<()> {
    request.set_response_header(b"Content-Encoding", b"br")?;
    request.forget_response_length();
    request.set_allow_ranges(false);
    request.remove_response_header(b"Accept-Ranges");
    match request.etag_header().map(|etag| encoding::weak_etag(etag.value())) {
        Some(Some(weak)) => request.set_response_header(b"ETag", &weak)?,
        Some(None) => request.remove_response_header(b"ETag"),
        None => {}
    }
    // nginx's modules that serve compressed files look at these.
    request.set_gzip_tested(true);
    request.set_gzip_ok(false);
    Some(())
}
