//! How much a route asks for, before anything is made of it.

use super::{HeaderFilter, HttpRouteFilter, HttpRouteRule, HttpRouteSpec};

/// What a header, a copy or another change takes beside its texts.
const OF_ONE: usize = 64;
/// What the settings of a rule or a backend take beside that.
const OF_ALL: usize = 512;
/// The bytes that a dollar of a text becomes which stands for itself.
const DOLLAR: usize = "${dollar}".len();

impl HttpRouteSpec {
    /// The number of rules, one for each match and backend.
    pub fn count_rules(&self) -> usize {
        let count =
            |rule: &HttpRouteRule| rule.matches.len().max(1) * rule.backend_refs.len().max(1);
        self.rules.iter().map(count).sum()
    }

    /// The bytes that its filters come to at one listener: those of a rule once, again for each backend that has some of its own,
    /// and all of these for each match where they change the beginning of a path.
    pub fn count_filter_bytes(&self) -> usize {
        let count = |rule: &HttpRouteRule| {
            let own = bytes_of(&rule.filters);
            let backends = rule.backend_refs.iter().map(|backend| &backend.filters);
            let apart = backends.filter(|filters| !filters.is_empty());
            let apart = apart.map(|filters| own.saturating_add(bytes_of(filters)));
            let all = apart.fold(own, usize::saturating_add);
            all.saturating_mul(if rule.depends_on_path() { rule.matches.len().max(1) } else { 1 })
        };
        self.rules.iter().map(count).fold(0, usize::saturating_add)
    }
}

impl HttpRouteRule {
    /// How often what holds for the whole rule is copied at one listener.
    pub fn count_copies(&self) -> usize {
        let apart = self.backend_refs.iter().filter(|backend| !backend.filters.is_empty()).count();
        let each = if self.depends_on_path() { self.matches.len().max(1) } else { 1 };
        (1 + apart).saturating_mul(each)
    }

    /// Whether its filters mean something else for each path.
    pub fn depends_on_path(&self) -> bool {
        let backends = self.backend_refs.iter().flat_map(|backend| &backend.filters);
        self.filters.iter().chain(backends).any(HttpRouteFilter::depends_on_path)
    }
}

impl HttpRouteFilter {
    /// Whether it changes the beginning of a path.
    fn depends_on_path(&self) -> bool {
        let rewrite = self.url_rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref());
        let redirect = self.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref());
        rewrite.into_iter().chain(redirect).any(|change| change.r#type != "ReplaceFullPath")
    }
}

fn bytes_of(filters: &[HttpRouteFilter]) -> usize {
    if filters.is_empty() {
        return 0;
    }
    filters.iter().map(bytes_of_one).fold(OF_ALL, usize::saturating_add)
}

fn bytes_of_one(filter: &HttpRouteFilter) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let texts = |all: &[String]| all.iter().map(|text| OF_ONE + text.len()).sum::<usize>();
    let mut sum = OF_ONE;
    if let Some(changes) = &filter.request_header_modifier {
        sum += headers(changes, DOLLAR);
    }
    if let Some(changes) = &filter.response_header_modifier {
        sum += headers(changes, 1);
    }
    if let Some(redirect) = &filter.request_redirect {
        sum += text(&redirect.scheme) + text(&redirect.hostname);
    }
    if let Some(rewrite) = &filter.url_rewrite {
        sum += text(&rewrite.hostname).saturating_mul(DOLLAR);
    }
    let rewrite = filter.url_rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref());
    let redirect = filter.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref());
    for change in rewrite.into_iter().chain(redirect) {
        sum += text(&change.replace_full_path) + text(&change.replace_prefix_match);
    }
    if let Some(mirror) = &filter.request_mirror {
        sum += 2 * mirror.backend_ref.name.len() + 2 * text(&mirror.backend_ref.namespace);
    }
    if let Some(cors) = &filter.cors {
        sum += texts(&cors.allow_origins) + texts(&cors.allow_methods);
        sum += texts(&cors.allow_headers) + texts(&cors.expose_headers);
    }
    sum
}

/// The bytes of changes of headers, whose dollars take so many.
fn headers(changes: &HeaderFilter, dollar: usize) -> usize {
    let all = changes.set.iter().chain(&changes.add);
    let all = all.map(|header| {
        let dollars = header.value.bytes().filter(|byte| *byte == b'$').count();
        OF_ONE + header.name.len() + header.value.len() + dollars.saturating_mul(dollar - 1)
    });
    let removed = changes.remove.iter().map(|name| OF_ONE + name.len());
    all.chain(removed).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bytes(rule: Value) -> usize {
        let rule: HttpRouteRule = serde_json::from_value(rule).unwrap();
        HttpRouteSpec { rules: vec![rule], ..HttpRouteSpec::default() }.count_filter_bytes()
    }

    #[test]
    fn filters_count_once_where_nothing_of_them_depends_on_a_match_or_a_backend() {
        let headers = |value: &str| {
            json!({"type": "RequestHeaderModifier",
                "requestHeaderModifier": {"set": [{"name": "a", "value": value}]}})
        };
        let (matches, backends) = (vec![json!({}); 64], vec![json!({"name": "s"}); 16]);
        let rule = |filters: Value, backends: &[Value]| json!({"matches": matches, "backendRefs": backends, "filters": filters});
        assert_eq!(bytes(rule(json!([]), &backends)), 0);
        let value = "v".repeat(4_096);
        let once = bytes(rule(json!([headers(&value)]), &backends));
        assert!((4_096..5_000).contains(&once), "{once}");
        let dollars = bytes(rule(json!([headers(&"$".repeat(4_096))]), &backends));
        assert!((36_864..38_000).contains(&dollars), "{dollars}");
        let mut apart = backends.clone();
        apart[3]["filters"] = json!([headers(&value)]);
        let twice = bytes(rule(json!([headers(&value)]), &apart));
        assert!((3 * 4_096..15_000).contains(&twice), "{twice}");
        let prefix = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"});
        let rewrite = json!({"type": "URLRewrite", "urlRewrite": {"path": prefix}});
        let each = bytes(rule(json!([headers(&value), rewrite]), &backends));
        assert!((64 * 4_096..64 * 5_000).contains(&each), "{each}");
    }
}
