//! The query of a request.

/// The value of a parameter as it was sent, by its name in any case: that of nginx's `$arg_NAME`. nginx looks for the name
/// everywhere, which takes the length of the query times that of the name; here a query is passed over once.
pub fn parameter<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
    query.split(|byte| *byte == b'&').find_map(|parameter| {
        let (start, rest) = parameter.split_at_checked(name.len())?;
        // Most differ here.
        let value = rest.strip_prefix(b"=")?;
        start.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Finds what nginx's `ngx_http_arg` finds, in the way in which it looks.
    fn of_nginx<'q>(query: &'q [u8], name: &[u8]) -> Option<&'q [u8]> {
        for at in 0..query.len() {
            let Some(found) = query.get(at..at + name.len()) else { break };
            let begins = at == 0 || query[at - 1] == b'&';
            let after = at + name.len();
            if found.eq_ignore_ascii_case(name) && begins && query.get(after) == Some(&b'=') {
                let value = &query[after + 1..];
                return value.split(|byte| *byte == b'&').next();
            }
        }
        None
    }

    #[test]
    fn a_parameter_is_found_by_its_whole_name() {
        for (query, name, expected) in [
            ("a=1", "a", Some("1")),
            ("b=0&A=1&a=2", "a", Some("1")),
            ("xa=0&a", "a", None),
            ("a&a=1=2", "a", Some("1=2")),
            ("a=&b=1", "a", Some("")),
            ("", "a", None),
        ] {
            let found = parameter(query.as_bytes(), name.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{query}");
        }
    }

    proptest! {
        #[test]
        fn it_is_what_nginx_finds(query in "[abA_&=]{0,24}", name in "[ab_]{1,3}") {
            let (query, name) = (query.as_bytes(), name.as_bytes());
            prop_assert_eq!(parameter(query, name), of_nginx(query, name));
        }
    }
}
