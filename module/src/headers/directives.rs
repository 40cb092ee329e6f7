//! The directives about what clients are told of the server (`ingress_hide_server`); about what clients may say: `ingress_keep_headers`, `ingress_strip_headers`, `ingress_refuse_paths`; and
//! about where they are: `ingress_proxied_client`.

use crate::conf::Http;
use crate::conf::directive::refuse;
use crate::request::Request;
use nginx::{Code, Conf, Next, PhaseHandler, Refused};
use oxigress_core::http::head::{Rules, may_be_kept, may_be_stripped};
use oxigress_core::http::paths;

/// `ingress_keep_headers NAME...;`: these request headers stay although they would be removed.
pub fn ingress_keep_headers(conf: &mut Conf) -> Result<(), Refused> {
    let what = "it is Forwarded or begins with X-Forwarded-";
    add_names(conf, what, may_be_kept, Rules::keep)
}

/// `ingress_strip_headers NAME...;`: these request headers of clients are removed.
pub fn ingress_strip_headers(conf: &mut Conf) -> Result<(), Refused> {
    let what = "it says how messages are framed or where they go";
    add_names(conf, what, may_be_stripped, Rules::strip)
}

/// `ingress_refuse_paths WORD...;`: requests with such paths are answered with 400.
pub fn ingress_refuse_paths(conf: &mut Conf) -> Result<(), Refused> {
    for word in conf.arguments().iter().skip(1) {
        let word = word.bytes();
        let paths = &mut conf.server::<Http>().refused_paths;
        if str::from_utf8(word).ok().and_then(|word| paths.add(word)).is_none() {
            let (shown, all) = (word.escape_ascii(), paths::Refused::WORDS.join(", "));
            return Err(refuse(
                conf,
                format_args!("invalid value \"{shown}\": it is one of {all}"),
            ));
        }
    }
    Ok(())
}

/// `ingress_hide_server;`: responses carry no `Server` header.
pub fn ingress_hide_server(conf: &mut Conf) -> Result<(), Refused> {
    let server = conf.server::<Http>();
    if std::mem::replace(&mut server.hides_server, true) {
        return Err(Refused::DUPLICATE);
    }
    Ok(())
}

/// `ingress_proxied_client HEADER FROM;`: the header that names the client behind trusted proxies.
pub fn ingress_proxied_client(conf: &mut Conf) -> Result<(), Refused> {
    if !conf.server::<Http>().proxied_client[0].is_empty() {
        return Err(Refused::DUPLICATE);
    }
    let arguments = conf.arguments();
    let [_, header, from] = &arguments[..] else { return Err(Refused::Told) };
    for name in [header, from] {
        if !str::from_utf8(name.bytes()).is_ok_and(may_be_stripped) {
            let (shown, what) = (name.bytes().escape_ascii(), "it is one that clients send");
            return Err(refuse(conf, format_args!("invalid header name \"{shown}\": {what}")));
        }
    }
    conf.server::<Http>().proxied_client = [header.clone(), from.clone()];
    Ok(())
}

fn add_names(
    conf: &mut Conf,
    what: &str,
    is_taken: fn(&str) -> bool,
    add: fn(&mut Rules, &[u8]),
) -> Result<(), Refused> {
    for name in conf.arguments().iter().skip(1) {
        let name = name.bytes();
        if !str::from_utf8(name).is_ok_and(is_taken) {
            let shown = name.escape_ascii();
            return Err(refuse(conf, format_args!("invalid header name \"{shown}\": {what}")));
        }
        add(conf.server::<Http>().rules.get_or_insert(Rules::NONE), name);
    }
    Ok(())
}

/// Says where a client is, where a server has `ingress_proxied_client`.
pub struct PostRead;

impl PhaseHandler for PostRead {
    const NAME: &'static str = "post_read";
    const PANICKED: Code = Code::DECLINED;

    fn run(request: &nginx::Request) -> Next<'_> {
        if let Some(request) = Request::of(request) {
            request.tell_proxied_client();
        }
        Code::DECLINED.into()
    }
}
