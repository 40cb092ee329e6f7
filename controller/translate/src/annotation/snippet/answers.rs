//! `auth_request_set`: variables of an auth server's answer.
//!
//! Errors:  what policies cannot say has no value, as a variable that nobody sets.
//! Source:  ngx_http_auth_request_module; the location of ingress-nginx's template has such directives of its own where there is an
//!          auth server, so that none is inherited.

use super::values::{Not, Result, impossible};
use oxigress_core::model::policy::script::{OF_ANSWER, OF_LOCATION, Set};
use oxigress_core::model::policy::{Policies, Template};
use oxigress_core::text::template::{Part, parts};

/// The directive.
pub const SET: &str = "auth_request_set";
/// Most of them.
const MOST: usize = 50;
/// What variables of a location's text, and of all locations', begin with.
const OF_LOCATIONS: [&str; 2] = [OF_LOCATION, "snippet_g_"];
/// What nginx knows of an answer that has arrived.
const OF_UPSTREAM: &str = "upstream_";

/// Takes one over, whose variables have the names of policies already.
pub fn set(name: &str, value: &str, policies: &mut Policies) -> Result {
    let name = name.strip_prefix('$').ok_or(Not::Known)?;
    if !OF_LOCATIONS.iter().any(|start| name.starts_with(start)) {
        return impossible(format!("variable ${name} is nginx's own and cannot be set"));
    }
    let value = Template::parse(of_answer(value)?)?;
    let external = policies.access.as_mut().and_then(|access| access.external.as_mut());
    let Some(external) = external else {
        return Err(Not::Needed("no auth server is asked here"));
    };
    if external.answer_variables.len() >= MOST {
        return impossible(format!("there are at most {MOST} variables of an answer"));
    }
    external.answer_variables.push(Set { name: name.to_owned(), value });
    Ok(())
}

/// The text with parts of an answer under their names in policies.
fn of_answer(text: &str) -> Result<String> {
    let mut renamed = Vec::with_capacity(text.len());
    for part in parts(text.as_bytes()) {
        match part {
            Part::Literal(literal) => renamed.extend_from_slice(literal),
            Part::Capture(_) => {
                return impossible("an auth request has no captures: set a variable");
            }
            Part::Variable(name) => {
                let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                let name = match name.strip_prefix(OF_UPSTREAM) {
                    Some(rest) if is_known(rest) => format!("{OF_ANSWER}{rest}"),
                    Some(_) => {
                        return impossible(format!(
                            "${name} is not known of an answer: use $upstream_status, $upstream_http_NAME or \
                             $upstream_cookie_NAME"
                        ));
                    }
                    // nginx has the location of the auth request there.
                    None if matches!(&*name, "uri" | "document_uri" | "args" | "query_string") => {
                        return impossible(format!("${name} is another one in an auth request"));
                    }
                    None => name,
                };
                renamed.extend_from_slice(format!("${{{name}}}").as_bytes());
            }
        }
    }
    String::from_utf8(renamed).or_else(|_| impossible("it is no text"))
}

fn is_known(part: &str) -> bool {
    let has_name = |start| part.strip_prefix(start).is_some_and(|name| !name.is_empty());
    part == "status" || has_name("http_") || has_name("cookie_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies() -> Policies {
        serde_json::from_str(
            r#"{"access": {"external": {"to": {"backend": "b", "host": "h"}, "target": "/"}}}"#,
        )
        .unwrap()
    }

    #[test]
    fn parts_of_an_answer_have_names_of_their_own() {
        let mut policies = policies();
        for (value, expected) in [
            ("$upstream_http_x_user", "${snippet_r_http_x_user}"),
            ("a-${Upstream_Status}b", "a-${snippet_r_status}b"),
            ("$upstream_cookie_a $host", "${snippet_r_cookie_a} ${host}"),
            ("$snippet_l_b", "${snippet_l_b}"),
        ] {
            assert_eq!(set("$snippet_l_a", value, &mut policies), Ok(()));
            let external = policies.access.as_mut().unwrap().external.as_mut().unwrap();
            let set = external.answer_variables.pop().unwrap();
            assert_eq!((&*set.name, set.value.as_str()), ("snippet_l_a", expected));
        }
    }

    #[test]
    fn what_no_answer_has_is_refused() {
        for (name, value) in [
            ("$snippet_l_a", "$upstream_addr"),
            ("$snippet_l_a", "$upstream_http_"),
            ("$snippet_l_a", "$uri"),
            ("$snippet_l_a", "$1"),
            ("$host", "a"),
        ] {
            let refused = set(name, value, &mut policies());
            assert!(matches!(refused, Err(Not::Possible(_))), "{name} {value}: {refused:?}");
        }
        let nobody_asked = set("$snippet_l_a", "a", &mut Policies::default());
        assert!(matches!(nobody_asked, Err(Not::Needed(_))));
    }
}
