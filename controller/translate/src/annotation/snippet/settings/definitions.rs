//! `map`, `geo` and `split_clients` of the ConfigMap's `http-snippet`: variables for all texts.
//!
//! Errors:  one that cannot be carried out is left out with its line, and so is what is worked out of it: texts that have its variable
//!          are texts with a variable that nobody knows.
//! Source:  ngx_http_map_module, ngx_http_geo_module, ngx_http_split_clients_module.

mod geo;
mod map;

use crate::annotation::snippet::names::Names;
use crate::annotation::snippet::values::{Left, Not, Result, impossible};
use crate::patterns::Compiler;
use oxigress_core::model::policy::defined::{Definition, Definitions, OF_DEFINITIONS, Split};
use oxigress_core::model::policy::{HeaderValue, Template};
use oxigress_core::text::template::{self, Part};
use oxigress_settings::grammar::directives::Directive;
use std::collections::BTreeMap;

/// Most bytes of all of them, as JSON.
const MOST_BYTES: usize = 256 * 1024;

/// Whether a directive defines a variable.
pub fn is_one(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "map" | "geo" | "split_clients")
}

/// Reads the definitions among directives; answers them and what is left out. The patterns are charged to namespace `owner`.
pub fn read<'d>(
    all: &'d [Directive],
    owner: &str,
    compiler: &mut Compiler<'_>,
) -> (Definitions, Vec<Left<'d>>) {
    let mut wanted: Vec<&Directive> = all.iter().filter(|one| is_one(one)).collect();
    let mut left = Vec::new();
    loop {
        let names = Names::of_definitions(wanted.iter().filter_map(|one| name_of(one)));
        let mut found = Definitions { owner: owner.to_owned(), variables: BTreeMap::new() };
        let before = wanted.len();
        wanted.retain(|directive| {
            let read = one(directive, &names, compiler).and_then(|(name, definition)| {
                found.variables.insert(name.clone(), definition);
                fits(&found).inspect_err(|_| _ = found.variables.remove(&name))
            });
            let is_kept = read.is_ok();
            left.extend(read.err().map(|not| Left::of(directive, not)));
            is_kept
        });
        // What has read them has to be read again.
        if wanted.len() == before {
            return (found, left);
        }
    }
}

/// The name of the variable that a directive defines, as the text has it.
fn name_of(directive: &Directive) -> Option<&str> {
    directive.arguments.last()?.strip_prefix('$')
}

fn one(
    directive: &Directive,
    names: &Names,
    compiler: &mut Compiler<'_>,
) -> Result<(String, Definition)> {
    let name = name_of(directive).ok_or(Not::Known)?.to_ascii_lowercase();
    if name == "connection_upgrade" {
        return Err(Not::Needed("the gateway works this variable out itself"));
    }
    if template::is_allowed(name.as_bytes()) {
        return impossible(format!("variable ${name} is nginx's own and cannot be set"));
    }
    let full = names.full(&name).ok_or(Not::Known)?;
    let block = directive.block.as_deref().ok_or(Not::Known)?;
    let definition = match (directive.name.as_str(), &directive.arguments[..]) {
        ("map", [source, _]) => {
            Definition::Map(map::read(text(source, names)?, block, names, compiler)?)
        }
        ("geo", [_]) => Definition::Geo(geo::read(Template::parse("$remote_addr")?, block)?),
        ("geo", [source, _]) if source.starts_with('$') => {
            Definition::Geo(geo::read(text(source, names)?, block)?)
        }
        ("split_clients", [source, _]) => Definition::Split(split(text(source, names)?, block)?),
        _ => return Err(Not::Known),
    };
    Ok((full, definition))
}

/// A text without captures: no pattern has matched before it.
fn text(text: &str, names: &Names) -> Result<Template> {
    let text = names.template(text)?;
    let has_captures = text.parts().any(|part| matches!(part, Part::Capture(_)));
    match has_captures {
        true => impossible("captures are known to the values of patterns only"),
        false => Ok(text),
    }
}

/// Whether they are few, and in no circle.
fn fits(all: &Definitions) -> Result {
    if all.variables.len() > Definitions::MAX_VARIABLES {
        return impossible("more than 50 variables are too many");
    }
    if all.patterns().count() > Definitions::MAX_PATTERNS {
        return impossible("more than 100 patterns are too many");
    }
    if serde_json::to_vec(all).map_or(0, |json| json.len()) > MOST_BYTES {
        return impossible("more than 256 KiB of variables are too much");
    }
    match all.variables.keys().all(|name| is_shallow(all, name, Definitions::MAX_DEPTH)) {
        true => Ok(()),
        false => impossible("it is worked out of itself, or by more than 5 others in a row"),
    }
}

fn is_shallow(all: &Definitions, name: &str, most: usize) -> bool {
    let Some(definition) = all.variables.get(name) else { return true };
    let mut parts = definition.templates().into_iter().flat_map(Template::parts);
    parts.all(|part| match part {
        Part::Variable(name) if name.starts_with(OF_DEFINITIONS.as_bytes()) => {
            most > 0 && is_shallow(all, &String::from_utf8_lossy(name), most - 1)
        }
        _ => true,
    })
}

fn split(source: Template, block: &[Directive]) -> Result<Split> {
    let (mut sum, mut last, mut parts) = (0_u32, 0_u64, Vec::new());
    for line in block {
        let ([value], None) = (&line.arguments[..], &line.block) else { return Err(Not::Known) };
        let hundredths = match line.name.as_str() {
            "*" => 0,
            share => hundredths(share)?,
        };
        sum = if hundredths == 0 { 10_000 } else { sum + hundredths };
        if sum > 10_000 {
            return impossible("its parts are more than 100%");
        }
        last += u64::from(hundredths) * u64::from(u32::MAX) / 10_000;
        let below = if hundredths == 0 { 0 } else { u32::try_from(last)? };
        parts.push((below, HeaderValue::parse(value.as_str())?));
    }
    Ok(Split { source, parts })
}

/// A share such as `0.25%`, in hundredths of a percent.
fn hundredths(text: &str) -> Result<u32> {
    let number = text.strip_suffix('%').ok_or(Not::Known)?;
    let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |text: &str| text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(rest) || rest.len() > 2 || number.is_empty() {
        return impossible(format!("{text:?} is no share such as 0.5%"));
    }
    match format!("{whole:0>1}{rest:0<2}").parse()? {
        0 => impossible("a share is at least 0.01%"),
        found => Ok(found),
    }
}
