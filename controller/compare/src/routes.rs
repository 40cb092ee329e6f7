//! The hosts and paths of Ingress objects: what to ask, and whose a request is.

use crate::requests::Request;
use crate::spelling::plain;
use oxigress_objects::World;
use oxigress_objects::ingress::Target;
use std::collections::BTreeMap;

/// A path of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressPath {
    /// As written; empty for all hosts that no other rule names.
    pub host: String,
    /// As written, `/` if it is empty.
    pub path: String,
    /// `namespace/name` of the Ingress.
    pub ingress: String,
    /// The name that ingress-nginx gives the backend: `namespace-service-port`.
    pub upstream: String,
    /// Whether spec.tls of an Ingress names the host.
    pub has_tls: bool,
}

impl IngressPath {
    /// A host that the route takes.
    pub fn sample_host(&self) -> String {
        match self.host.strip_prefix('*') {
            Some(rest) => format!("compare{rest}"),
            None if self.host.is_empty() => "compare.invalid".into(),
            None => self.host.clone(),
        }
    }
}

/// All of them, by host.
#[derive(Clone, Debug, Default)]
pub struct Routes(BTreeMap<String, Vec<IngressPath>>);

impl Routes {
    /// The routes of all Ingresses, whatever their class.
    pub fn of(world: &World) -> Self {
        let mut routes = Routes::default();
        let tls: std::collections::BTreeSet<&str> = world
            .ingresses
            .values()
            .flat_map(|ingress| &ingress.tls)
            .flat_map(|tls| &tls.hosts)
            .map(String::as_str)
            .collect();
        let has_tls = |host: &str| {
            let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
            tls.contains(host) || wildcard.is_some_and(|wildcard| tls.contains(&*wildcard))
        };
        for (key, ingress) in &world.ingresses {
            let mut add = |host: &str, path: &str, target: &Target| {
                let Target::Service { name, port } = target else { return };
                let route = IngressPath {
                    host: host.to_owned(),
                    path: if path.is_empty() { "/".into() } else { path.to_owned() },
                    ingress: key.to_string(),
                    upstream: format!("{}-{name}-{port}", key.namespace),
                    has_tls: has_tls(host),
                };
                routes.0.entry(route.host.clone()).or_default().push(route);
            };
            for rule in &ingress.rules {
                rule.paths.iter().for_each(|path| add(&rule.host, &path.path, &path.target));
            }
            if let Some(target) = &ingress.default_backend {
                let named = ingress.rules.iter().map(|rule| rule.host.as_str());
                let hosts: Vec<_> =
                    if ingress.rules.is_empty() { vec![""] } else { named.collect() };
                hosts.into_iter().for_each(|host| add(host, "/", target));
            }
        }
        routes
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All routes of the objects.
    pub fn all(&self) -> impl Iterator<Item = &IngressPath> {
        self.0.values().flatten()
    }

    /// The host of a request that ingress-nginx logged with this upstream: that of the longest path that takes it.
    pub fn host_of(&self, upstream: &str, path: &str) -> Option<String> {
        let of_upstream = self.all().filter(|route| route.upstream == upstream);
        let takes = of_upstream.filter(|route| path.starts_with(plain(&route.path)));
        takes.max_by_key(|route| plain(&route.path).len()).map(IngressPath::sample_host)
    }

    /// The name under which a request is reported: host, path and Ingress of the route, or else the path's first segment.
    pub fn name(&self, request: &Request) -> String {
        let host = request.host_name();
        let wildcard =
            host.split_once('.').map(|(_, rest)| format!("*.{rest}")).unwrap_or_default();
        let found = [host, &wildcard, ""].into_iter().find_map(|host| self.0.get(host));
        // The spellings that are asked besides lead to the same route.
        let path = format!("/{}", request.path().trim_start_matches(['/', '.']));
        let path = path.strip_prefix("/compare/..").unwrap_or(&path).to_ascii_lowercase();
        let takes =
            |route: &&IngressPath| path.starts_with(&plain(&route.path).to_ascii_lowercase());
        let route = found.into_iter().flatten().filter(takes).max_by_key(|route| route.path.len());
        match route {
            Some(route) => {
                let host = if route.host.is_empty() { "*" } else { &route.host };
                format!("{host} {} ({})", route.path, route.ingress)
            }
            None => {
                let segment = request.path().trim_start_matches('/').split('/').next();
                format!("{host} /{}", segment.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use oxigress_objects::Key;
    use oxigress_objects::ingress::{Ingress, Path, PathType, Port, Rule, Tls};
    use std::sync::Arc;

    /// A shop with `/` and `/cart(/|$)(.*)`, a wildcard, and a certificate for the shop.
    pub fn shop() -> Routes {
        let path = |path: &str, service: &str| Path {
            path: path.into(),
            path_type: PathType::Prefix,
            target: Target::Service { name: service.into(), port: Port::Number(80) },
        };
        let rule = |host: &str, paths: Vec<Path>| Rule { host: host.into(), paths };
        let ingress = Ingress {
            rules: vec![
                rule("shop.test", vec![path("/", "web"), path("/cart(/|$)(.*)", "cart")]),
                rule("*.tenant.test", vec![path("/", "tenant")]),
            ],
            tls: vec![Tls { hosts: vec!["shop.test".into()], secret: String::new() }],
            ..Ingress::default()
        };
        let mut world = World::default();
        world.ingresses.insert(Key::new("shop", "all"), Arc::new(ingress));
        Routes::of(&world)
    }

    fn request(host: &str, target: &str) -> Request {
        Request { method: "GET".into(), is_https: false, host: host.into(), target: target.into() }
    }

    #[test]
    fn a_request_is_reported_under_the_route_that_its_spelling_is_of() {
        let shop = shop();
        for (host, target, expected) in [
            ("shop.test", "/cart/x?a", "shop.test /cart(/|$)(.*) (shop/all)"),
            ("shop.test:8443", "/compare/../cart", "shop.test /cart(/|$)(.*) (shop/all)"),
            ("shop.test", "//CART", "shop.test /cart(/|$)(.*) (shop/all)"),
            ("shop.test", "/x", "shop.test / (shop/all)"),
            ("a.tenant.test", "/x", "*.tenant.test / (shop/all)"),
            ("other.test", "/a/b", "other.test /a"),
        ] {
            assert_eq!(shop.name(&request(host, target)), expected, "{host}{target}");
        }
    }

    #[test]
    fn a_host_is_found_by_the_upstream_of_a_log() {
        let shop = shop();
        assert_eq!(shop.host_of("shop-cart-80", "/cart/1").as_deref(), Some("shop.test"));
        assert_eq!(shop.host_of("shop-tenant-80", "/").as_deref(), Some("compare.tenant.test"));
        assert_eq!(shop.host_of("shop-other-80", "/"), None);
    }
}
