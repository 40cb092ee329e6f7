//! Which requests a rule takes, and what the expressions in that cost.

use super::{OF_NAMESPACE, OF_ROUTE, RouteReader, Tried};
use oxigress_core::model::policy::HeaderName;
use oxigress_core::model::{Invalid, PATH, PathPattern, Selection, ValueMatch, ValuePattern};
use oxigress_core::patterns::{pattern_is_valid, price_of, price_of_reading};
use oxigress_objects::Kind;
use oxigress_objects::gateway::{HttpRouteMatch, HttpRouteRule, HttpValueMatch};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Most headers, or parameters, that a match asks for. The definitions of the API allow 16; where routes meet, those of two are
/// joined, and a record has 64.
const MAX_VALUES: usize = 32;

/// Which requests a match takes: of which paths, and what else they have.
pub type Asked = (PathPattern, Selection);

/// What the rules of a route of requests ask for. Expressions are not compiled; what cannot be read is left out.
pub fn asked(kind: Kind, rules: &[HttpRouteRule]) -> BTreeSet<Asked> {
    let any = [HttpRouteMatch::default()];
    let matches = rules.iter().flat_map(|rule| match rule.matches.is_empty() {
        true => &any[..],
        false => &rule.matches,
    });
    let read = matches.filter_map(|one| read(kind, one, &mut |_| Ok(())).ok());
    read.map(|(path, _, selection)| (path, selection)).collect()
}

/// The path, as written too, and what else a match of a route of this kind asks for.
fn read(
    kind: Kind,
    one: &HttpRouteMatch,
    compile: Compile<'_>,
) -> Result<(PathPattern, String, Selection), String> {
    let path = one.path.clone().unwrap_or_default();
    let mut written = path.value.unwrap_or_else(|| "/".into());
    let is_grpc = kind == Kind::GRPCRoute;
    let (mut method, mut headers) = (one.method.as_deref(), Cow::Borrowed(&*one.headers));
    let pattern = match path.r#type.as_deref() {
        None | Some("PathPrefix") => PathPattern::prefix(&written),
        Some("Exact") => PathPattern::exact(&written),
        Some("RegularExpression") if is_grpc => {
            let value = std::mem::replace(&mut written, "/".into());
            let r#type = Some("RegularExpression".into());
            headers.to_mut().insert(0, HttpValueMatch { r#type, name: PATH.into(), value });
            // What asks for a service or a method comes before what asks for headers alone, and calls have this method.
            method = Some("POST");
            PathPattern::prefix("/")
        }
        Some(other) if is_grpc => {
            return Err(format!("method.type {other} is not served: use Exact"));
        }
        Some(other) => return Err(format!("path.type {other} is not served: use PathPrefix")),
    };
    let pattern = pattern.map_err(|why| format!("path: {why}"))?;
    let method = method.map(HeaderName::parse).transpose();
    let selection = Selection {
        method: method.map_err(|why| format!("method: {why}"))?,
        headers: values(&headers, "headers", true, compile)?,
        query: values(&one.query_params, "queryParams", false, compile)?,
        weight: None,
    };
    Ok((pattern, written, selection))
}

/// Compiles an expression, or tells why not.
type Compile<'c> = &'c mut dyn FnMut(String) -> Result<(), Invalid>;

/// Of several with one name the first counts.
fn values(
    all: &[HttpValueMatch],
    field: &str,
    in_any_case: bool,
    compile: Compile<'_>,
) -> Result<Vec<ValueMatch>, String> {
    if all.len() > MAX_VALUES {
        return Err(format!("{field}: {} of them, at most {MAX_VALUES}: remove some", all.len()));
    }
    let mut values: Vec<ValueMatch> = Vec::new();
    for one in all {
        let name = if in_any_case { one.name.to_ascii_lowercase() } else { one.name.clone() };
        if values.iter().any(|value| value.name == name) {
            continue;
        }
        let pattern = match one.r#type.as_deref() {
            None | Some("Exact") => ValuePattern::Exact(one.value.clone()),
            Some("RegularExpression") => ValuePattern::Regex(one.value.clone()),
            Some(other) => return Err(format!("{field}: type {other} is unknown")),
        };
        let value = ValueMatch::new(name, pattern).map_err(|why| format!("{field}: {why}"))?;
        if let Some(regex) = value.regex() {
            compile(regex).map_err(|why| format!("{field}: {why}"))?;
        }
        values.push(value);
    }
    Ok(values)
}

impl RouteReader<'_, '_> {
    /// The path, as written too, and what else a match asks for.
    pub(super) fn match_of(
        &mut self,
        one: &HttpRouteMatch,
    ) -> Result<(PathPattern, String, Selection), String> {
        read(self.id.kind, one, &mut |regex| self.compile(regex))
    }

    /// Charges an expression to the route and its namespace, also one that was tried before: what is served does not depend
    /// on what was.
    fn compile(&mut self, regex: String) -> Result<(), Invalid> {
        let over = || {
            Invalid::new(format!(
                "the regular expressions of this route take more than {} ms to compile, or those of its namespace more than \
                 {} ms: use fewer or simpler ones",
                OF_ROUTE / 1_000_000,
                OF_NAMESPACE / 1_000_000
            ))
        };
        let known = self.patterns.get(&regex).cloned();
        self.compiled.expressions.insert(regex.clone());
        let reading = price_of_reading(&regex);
        let charge = &mut self.compiled.charge;
        if self.allowance.left() < reading || !charge.asks(reading, self.namespace) {
            return Err(over());
        }
        let price = match &known {
            Some(known) => Ok(known.price),
            None => price_of(&regex),
        };
        let cost = *price.as_ref().unwrap_or(&reading);
        let part = self.allowance.split(cost).filter(|_| charge.asks(cost, self.namespace));
        let Some(part) = part.filter(|_| self.namespace.split(cost).is_some()) else {
            // What was read of it need not be read again.
            let result = known.and_then(|known| known.result);
            self.patterns.entry(regex).or_insert(Tried { price: cost, result });
            return Err(over());
        };
        charge.taken += cost;
        let result = match (known.and_then(|known| known.result), price) {
            (Some(result), _) => result,
            (None, Err(why)) => Err(why),
            (None, Ok(_)) => pattern_is_valid(&regex, part),
        };
        self.patterns.insert(regex, Tried { price: cost, result: Some(result.clone()) });
        result
    }
}
