//! A number and its noun: "1 rule", "2 rules".

/// The number with the noun in the form that belongs to it. The noun is the singular: "rule", "Ingress", "policy".
pub fn count(number: usize, noun: &str) -> String {
    let ends = |end: &[&str]| end.iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y') {
        _ if number == 1 => format!("1 {noun}"),
        Some(stem) if !ends(&["ay", "ey", "oy", "uy"]) => format!("{number} {stem}ies"),
        _ if ends(&["s", "x", "ch", "sh"]) => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_has_the_form_of_its_number() {
        assert_eq!(count(0, "rule"), "0 rules");
        assert_eq!(count(1, "Ingress"), "1 Ingress");
        for (noun, plural) in [
            ("rule", "rules"),
            ("Ingress", "Ingresses"),
            ("policy", "policies"),
            ("BackendTLSPolicy", "BackendTLSPolicies"),
            ("key", "keys"),
            ("match", "matches"),
        ] {
            assert_eq!(count(2, noun), format!("2 {plural}"));
        }
    }
}
