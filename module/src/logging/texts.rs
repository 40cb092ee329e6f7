//! The directives of texts that are written in one piece, each of which makes a variable.

use crate::conf::Http;
use crate::conf::directive::refuse;
use crate::logging::lines::Header;
use crate::logging::lines::Piece;
use crate::logging::lines::Text;
use crate::logging::lines::parse;
use crate::request::Request;
use nginx::{Argument, Conf, Lookup, Refused, VariableFlags};
use oxigress_core::text::log::Escape;
use std::borrow::Cow;

/// The texts of a configuration.
#[derive(Default)]
pub struct Texts(Vec<Text>);

/// `ingress_log_line $NAME [escape=default|json|none] FORMAT...;`
pub fn ingress_log_line(conf: &mut Conf) -> Result<(), Refused> {
    let arguments = conf.arguments();
    let [_, name, format @ ..] = &arguments[..] else { return Err(Refused::Told) };
    let mut words = format.iter().map(Argument::bytes).peekable();
    let mut escape = Escape::Default;
    if let Some(named) = words.peek().and_then(|word| word.strip_prefix(b"escape=")) {
        let Some(known) = Escape::named(named) else {
            let shown = named.escape_ascii();
            let reason = format_args!("invalid escape \"{shown}\": it is default, json or none");
            return Err(refuse(conf, reason));
        };
        escape = known;
        words.next();
    }
    if words.peek().is_none() {
        return Err(refuse(conf, "a line needs a format"));
    }
    let format = words.collect::<Vec<_>>().concat();
    let pieces = pieces(conf, &format)?;
    add(conf, name, Text::Line(pieces, escape))
}

/// `ingress_header_lines $NAME HEADER VALUE...;`
pub fn ingress_header_lines(conf: &mut Conf) -> Result<(), Refused> {
    let arguments = conf.arguments();
    let [_, name, rest @ ..] = &arguments[..] else { return Err(Refused::Told) };
    let (pairs, odd) = rest.as_chunks::<2>();
    if !odd.is_empty() || pairs.is_empty() {
        return Err(refuse(conf, "each header has a name and a value"));
    }
    let mut headers = Vec::with_capacity(pairs.len());
    for [header, value] in pairs {
        let value = pieces(conf, value.bytes())?;
        headers.push(match headers.is_empty() {
            true => Header::first(value),
            false => Header::next(header.bytes(), value),
        });
    }
    add(conf, name, Text::Headers(headers))
}

fn pieces(conf: &Conf, text: &[u8]) -> Result<Vec<Piece>, Refused> {
    // nginx has said why a variable has no index.
    parse(text, |name| conf.variable_index(name)).ok_or(Refused::Told)
}

/// Adds the variable of a text.
fn add(conf: &mut Conf, name: &Argument, text: Text) -> Result<(), Refused> {
    let Some(name) = name.variable_name() else {
        let shown = name.bytes().escape_ascii();
        let reason = format_args!("invalid variable name \"{shown}\": it begins with \"$\"");
        return Err(refuse(conf, reason));
    };
    let texts = &mut conf.main::<Http>().0;
    let place = texts.len();
    texts.push(text);
    // nginx says what is wrong with the name.
    conf.add_variable::<Texts>(name, VariableFlags::default(), place).ok_or(Refused::Told)
}

impl nginx::Variable for Texts {
    fn get<'r>(request: &'r nginx::Request, place: usize) -> Lookup<'r> {
        let text = request.main_conf::<Http>().0.get(place)?;
        let ours = Request::of(request)?;
        let mut line = ours.worker().take_scratch();
        text.write(&mut line, &ours);
        let copy = request.pool().concat(&[&line]);
        ours.worker().keep_scratch(line);
        copy.map(Cow::Borrowed)
    }
}
