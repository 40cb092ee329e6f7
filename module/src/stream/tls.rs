//! TLS to the endpoints of sessions whose own TLS has ended here, as the policies of their target say it.

use crate::request::policies::Compiled;
use crate::stream::Stream;
use crate::tls::upstream;
use nginx::ssl::context::Context;
use nginx::stream::Session;
use nginx::stream::tls::EndpointTls;
use std::cell::OnceCell;
use std::rc::Rc;

/// The context of one set of policies, made when first asked for.
#[derive(Default)]
pub struct SessionTls(OnceCell<Rc<Context>>);

/// Speaks TLS to the session's endpoint. `None`: it cannot be as the policies want it, so the session goes nowhere.
pub fn speak(session: &Session, policies: &Compiled) -> Option<()> {
    let tls = policies.source.proxy.as_ref()?.tls.as_ref()?;
    let name = tls.name.as_ref()?.as_str();
    let kept = &policies.part::<SessionTls>().0;
    let context = match kept.get() {
        Some(context) => context.clone(),
        None => {
            let new = upstream::context(session.event_loop(), tls, false)?;
            kept.get_or_init(|| new).clone()
        }
    };
    let (server_name, verify) = (tls.server_name, tls.verify);
    session.speak_tls::<Stream>(EndpointTls { context, name, server_name, verify })
}
