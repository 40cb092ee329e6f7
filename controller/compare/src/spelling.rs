//! The spellings of a path that gateways may treat differently.

/// Where a regular expression stops being plain text.
const SPECIAL: &[char] = &['(', '[', '.', '*', '+', '?', '^', '$', '|', '{', '\\'];

/// The beginning of a path that is plain text, whether the path is a regular expression or not: `/api` of `/api(/|$)(.*)`.
pub fn plain(path: &str) -> &str {
    let Some(at) = path.find(SPECIAL) else { return path };
    let (before, rest) = path.split_at(at);
    // `/robots.txt` is as often text as an expression; `x*` may have no x at all.
    match rest.chars().next() {
        Some('.') if !rest.starts_with(".*") && !rest.starts_with(".+") => {
            let next = plain(rest.strip_prefix('.').unwrap_or_default());
            path.get(..before.len() + 1 + next.len()).unwrap_or(before)
        }
        Some('*' | '?' | '{') => {
            before.char_indices().next_back().map_or("", |(at, _)| &before[..at])
        }
        _ => before,
    }
}

/// The targets to ask for a path of an Ingress, the path itself first. No two are equal.
pub fn spellings(path: &str) -> Vec<String> {
    let plain = plain(path);
    let path = if plain.starts_with('/') { plain } else { "/" };
    let bare = path.trim_end_matches('/');
    let mut all = vec![
        path.to_owned(),
        // The end: with a slash, a further segment, further letters, a query.
        format!("{bare}/"),
        format!("{bare}/compare"),
        format!("{bare}compare"),
        format!("{path}?compare=1"),
        // Slashes and dots that are normalised.
        format!("/{path}"),
        format!("/.{path}"),
        format!("/compare/..{path}"),
        format!("{bare}/../compare"),
        // Escapes: of a slash, which stays, and of a letter, which does not.
        format!("{bare}/compare%2Fcompare"),
        format!("{bare}/%63ompare"),
        format!("{bare}/compare;a=b"),
        path.to_ascii_uppercase(),
    ];
    if !bare.is_empty() {
        all.push(bare.to_owned());
    }
    all.iter_mut()
        .filter(|target| !target.starts_with('/'))
        .for_each(|target| target.insert(0, '/'));
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|target| seen.insert(target.clone()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_beginning_of_an_expression_is_asked() {
        for (path, expected) in [
            ("/api", "/api"),
            ("/api(/|$)(.*)", "/api"),
            ("/api/?(.*)", "/api"),
            ("/robots.txt", "/robots.txt"),
            ("/a/.*", "/a/"),
            ("/v[0-9]+/x", "/v"),
            ("/", "/"),
        ] {
            assert_eq!(plain(path), expected, "{path}");
        }
    }

    #[test]
    fn spellings_are_targets_and_no_two_are_equal() {
        for path in ["/", "/cart", "/cart/", "", "/a(b)?", "x"] {
            let all = spellings(path);
            assert!(all.iter().all(|one| one.starts_with('/')), "{path}: {all:?}");
            let distinct: std::collections::BTreeSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "{path}: {all:?}");
        }
        let cart = spellings("/cart");
        for expected in
            ["/cart", "/cart/", "/cartcompare", "//cart", "/CART", "/cart/compare%2Fcompare"]
        {
            assert!(cart.iter().any(|one| one == expected), "{expected}: {cart:?}");
        }
    }
}
