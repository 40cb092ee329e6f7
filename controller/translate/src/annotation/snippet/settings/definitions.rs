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
use oxigress_core::model::policy::{HeaderValue, Policies, Template};
use oxigress_core::patterns;
use oxigress_core::text::template::{self, Part};
use oxigress_settings::grammar::directives::Directive;
use std::collections::{BTreeMap, BTreeSet};

/// Longer values of headers are seldom, but for cookies.
const USUAL_BYTES: u64 = 1_024;
/// Most bytes of all of them, as JSON.
const MOST_BYTES: usize = 256 * 1024;

/// Whether a directive defines a variable.
pub fn is_one(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "map" | "geo" | "split_clients")
}

/// Reads the definitions among directives; answers them and what is left out.
pub fn read<'d>(all: &'d [Directive], compiler: &mut Compiler<'_>) -> (Definitions, Vec<Left<'d>>) {
    let mut wanted: Vec<&Directive> = all.iter().filter(|one| is_one(one)).collect();
    let (mut left, mut checked) = (Vec::new(), Checked::default());
    loop {
        let names = Names::of_definitions(wanted.iter().filter_map(|one| name_of(one)));
        let mut found = Definitions::default();
        let before = wanted.len();
        let mut lost = BTreeSet::new();
        wanted.retain(|directive| {
            let read = one(directive, (&names, compiler, &mut checked)).and_then(|(name, it)| {
                found.variables.insert(name.clone(), it);
                fits(&found).inspect_err(|_| _ = found.variables.remove(&name))
            });
            let is_kept = read.is_ok();
            if !is_kept {
                lost.extend(lower_name_of(directive));
            }
            left.extend(read.err().map(|not| Left::of(directive, not)));
            is_kept
        });
        // Of two the last counts: the first says nothing about what it was to be.
        wanted.retain(|directive| {
            let is_lost = lower_name_of(directive).is_some_and(|name| lost.contains(&name));
            if is_lost {
                let why = "another one of this name is left out".to_owned();
                left.push(Left::of(directive, Not::Possible(why)));
            }
            !is_lost
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

fn lower_name_of(directive: &Directive) -> Option<String> {
    name_of(directive).map(str::to_ascii_lowercase)
}

/// Patterns that were looked at already.
type Checked = BTreeSet<String>;

/// What a block is read with: the names of all, and what its patterns may cost.
type Reader<'r, 'c> = (&'r Names, &'r mut Compiler<'c>, &'r mut Checked);

/// The maps whose patterns have no time for values of a length that requests have, and for how long ones they have.
pub fn slow(all: &Definitions) -> Vec<(&str, u64)> {
    let maps = all.variables.iter().filter_map(|(name, definition)| match definition {
        Definition::Map(map) => Some((name.strip_prefix(OF_DEFINITIONS)?, map)),
        Definition::Geo(_) | Definition::Split(_) => None,
    });
    let longest = maps.filter_map(|(name, map)| {
        let patterns = map.patterns.iter().map(|(pattern, _)| pattern.as_str());
        Some((name, patterns::longest_value(patterns)?))
    });
    longest.filter(|(_, bytes)| *bytes < USUAL_BYTES).collect()
}

fn one(
    directive: &Directive,
    (names, compiler, checked): Reader<'_, '_>,
) -> Result<(String, Definition)> {
    let name = name_of(directive).ok_or(Not::Known)?.to_ascii_lowercase();
    if name == "connection_upgrade" {
        return Err(Not::Needed("the gateway works this variable out itself"));
    }
    // One of a client's header, parameter or cookie is another one from now on, as in nginx.
    if template::is_known(name.as_bytes()) {
        return impossible(format!("variable ${name} is nginx's own and cannot be set"));
    }
    let full = names.full(&name).ok_or(Not::Known)?;
    let block = directive.block.as_deref().ok_or(Not::Known)?;
    let definition = match (directive.name.as_str(), &directive.arguments[..]) {
        ("map", [source, _]) => {
            let source = text(source, names)?;
            Definition::Map(map::read(source, block, (names, compiler, checked))?)
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
    let definitions = Some(Box::new(all.clone()));
    let record = Policies { definitions, ..Policies::default() };
    if let Err(fault) = oxigress_validate::record::policies(&record) {
        return impossible(fault.error);
    }
    if serde_json::to_vec(all).map_or(0, |json| json.len()) > MOST_BYTES {
        return impossible("more than 256 KiB of variables are too much");
    }
    let mut known = BTreeMap::new();
    let mut depths = all.variables.keys().map(|name| depth(all, name, 0, &mut known));
    match depths.all(|depth| depth.is_some_and(|depth| depth <= Definitions::MAX_DEPTH)) {
        true => Ok(()),
        false => impossible("it is worked out of itself, or by more than 5 others in a row"),
    }
}

/// How many others stand in a row behind a variable; `None`: more than are taken, or it stands there itself. `known`: of those that
/// were looked at.
fn depth<'d>(
    all: &'d Definitions,
    name: &str,
    above: usize,
    known: &mut BTreeMap<&'d str, usize>,
) -> Option<usize> {
    let Some((name, definition)) = all.variables.get_key_value(name) else { return Some(0) };
    if let Some(depth) = known.get(name.as_str()) {
        return Some(*depth);
    }
    if above > Definitions::MAX_DEPTH {
        return None;
    }
    let mut deepest = 0;
    for part in definition.templates().flat_map(Template::parts) {
        if let Part::Variable(other) = part
            && other.starts_with(OF_DEFINITIONS.as_bytes())
        {
            let other = String::from_utf8_lossy(other);
            deepest = deepest.max(depth(all, &other, above + 1, known)? + 1);
        }
    }
    known.insert(name, deepest);
    Some(deepest)
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
