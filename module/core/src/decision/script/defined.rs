//! Variables that are worked out of others: those of [`Definitions`]. Steps have them worked out when they need one, all other texts
//! after the steps.
//!
//! Errors:  what takes too long, or is not there, answers 500.
//! Cost:    nothing for texts without such a variable. Each is worked out once for a request.
//! Source:  ngx_http_map_variable, ngx_http_geo_variable, ngx_http_split_clients_variable.

use super::{Variable, of_uri};
use crate::decision::facts::{CompiledPolicies, Generation};
use crate::model::policy::Template;
use crate::model::policy::defined::{Definition, Definitions, Geo, Map, is_defined};
use crate::model::policy::script::VARIABLES;
use crate::patterns::{Budget, Captures, NamespacePatterns, NoAnswer};
use crate::text::template::{self, Part, Values};
use std::borrow::Cow;

/// Most bytes of the values that are worked out for one text.
const MOST_BYTES: usize = 128 * 1024;

/// Where definitions are.
pub trait DefinitionSource {
    /// Calls the function with them and with the patterns, if there are any.
    fn with(&self, read: &mut dyn FnMut(&Definitions, NamespacePatterns<'_>));
}

/// The definitions of a generation. What a namespace's requests have searched is charged to this namespace: whose Ingress takes a
/// request has the load of it.
pub struct OfGeneration<'a, G> {
    /// Where they are.
    pub generation: &'a G,
    /// Of the rule that takes the request.
    pub namespace: &'a [u8],
}

impl<'g, G: Generation<'g>> DefinitionSource for OfGeneration<'_, G> {
    #[cold]
    fn with(&self, read: &mut dyn FnMut(&Definitions, NamespacePatterns<'_>)) {
        let OfGeneration { generation, namespace } = self;
        let Some(policies) = generation.policies(Definitions::ID.as_bytes()) else { return };
        if let Some(found) = &policies.source().definitions {
            read(found, generation.patterns().of(namespace));
        }
    }
}

/// Values of a request whose path and query may be others by now.
pub struct Rewritten<'a, V> {
    /// The path, decoded, and the query.
    pub uri: (&'a [u8], &'a [u8]),
    /// All else.
    pub values: &'a V,
}

impl<V: Values> Values for Rewritten<'_, V> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let (path, args) = self.uri;
        of_uri(name, path, args).unwrap_or_else(|| self.values.variable(name))
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.values.capture(number)
    }
}

/// Works out the variables of a text that are not known yet, and adds them to `known`.
#[cold]
pub fn know(
    text: &Template,
    source: &dyn DefinitionSource,
    known: &mut Vec<Variable>,
    budget: &mut Budget,
    values: &dyn Values,
) -> Result<(), NoAnswer> {
    // Definitions that are not there yet, or any more, might have decided about the request.
    let mut done = Err(NoAnswer);
    source.with(&mut |definitions, patterns| {
        known.retain(|(name, _)| {
            !definitions.variables.get(&**name).is_some_and(Definition::is_volatile)
        });
        let room = MOST_BYTES;
        let mut work = Work { definitions, patterns, known, budget, values, room };
        done = work.text(text, 0);
    });
    done
}

struct Work<'w> {
    definitions: &'w Definitions,
    patterns: NamespacePatterns<'w>,
    known: &'w mut Vec<Variable>,
    budget: &'w mut Budget,
    values: &'w dyn Values,
    /// Bytes that values of a text may have yet.
    room: usize,
}

impl Work<'_> {
    fn text(&mut self, text: &Template, depth: usize) -> Result<(), NoAnswer> {
        for part in text.parts() {
            match part {
                Part::Variable(name) if is_defined(name) => self.variable(name, depth)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn variable(&mut self, name: &[u8], depth: usize) -> Result<(), NoAnswer> {
        let is_known = self.known.iter().any(|(known, _)| known.as_bytes() == name);
        let definitions = self.definitions;
        let found = str::from_utf8(name)
            .ok()
            .and_then(|name| definitions.variables.get_key_value(name).filter(|_| !is_known));
        let Some((name, definition)) = found else {
            return if is_known { Ok(()) } else { Err(NoAnswer) };
        };
        if depth > Definitions::MAX_DEPTH {
            return Err(NoAnswer);
        }
        let source = self.expanded(definition.source(), None, depth)?;
        let value = match definition {
            Definition::Map(map) => self.mapped(map, source, depth)?,
            Definition::Geo(geo) => {
                let text = str::from_utf8(&source).unwrap_or_default();
                let address = text.parse::<std::net::IpAddr>().unwrap_or(Geo::NOWHERE);
                let found = geo.value(address.to_canonical());
                found.map_or("", |value| value.as_str()).into()
            }
            Definition::Split(split) => {
                split.value(&source).map_or("", |value| value.as_str()).into()
            }
        };
        self.room = self.room.checked_sub(value.len()).ok_or(NoAnswer)?;
        self.known.push((name.as_str().into(), value));
        Ok(())
    }

    fn mapped(
        &mut self,
        map: &Map,
        mut source: Vec<u8>,
        depth: usize,
    ) -> Result<Vec<u8>, NoAnswer> {
        if map.has_hostnames && source.ends_with(b".") {
            source.pop();
        }
        let lower = source.to_ascii_lowercase();
        // Bytes that are no text are in no name, and stand where a star stands.
        if let Some(value) = map.of_text(&String::from_utf8_lossy(&lower)) {
            return self.expanded(value, None, depth);
        }
        for (pattern, value) in map.patterns.iter().filter(|_| !source.is_empty()) {
            let found = self.patterns.search(pattern.as_str().as_bytes(), &source, self.budget)?;
            if let Some(captures) = found {
                return self.expanded(value, Some((&captures, &source)), depth);
            }
        }
        self.expanded(&map.default, None, depth)
    }

    fn expanded(
        &mut self,
        text: &Template,
        captures: Option<(&Captures, &[u8])>,
        depth: usize,
    ) -> Result<Vec<u8>, NoAnswer> {
        self.text(text, depth + 1)?;
        let values = Known { known: self.known, captures, values: self.values };
        let text = template::assemble(text.parts(), |part, text| {
            text.extend_from_slice(&values.value(part));
        });
        text.ok_or(NoAnswer)
    }
}

/// What a definition's texts are made of.
struct Known<'k> {
    known: &'k [Variable],
    captures: Option<(&'k Captures, &'k [u8])>,
    values: &'k dyn Values,
}

impl Values for Known<'_> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        if name.starts_with(VARIABLES.as_bytes()) {
            let (_, value) = self.known.iter().find(|(known, _)| known.as_bytes() == name)?;
            return Some(Cow::Borrowed(value));
        }
        self.values.variable(name)
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.captures.map_or(&[], |(captures, value)| captures.get(number, value))
    }
}
