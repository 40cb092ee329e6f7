//! What the ConfigMap says about every location holds for routes of the Gateway API too.

use super::*;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use std::net::IpAddr;

const GATEWAY: &str = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
    spec: { controllerName: oxigress.io/gateway-controller }\n---\napiVersion: gateway.networking.k8s.io/v1\n\
    kind: Gateway\nmetadata: { name: web, namespace: default }\nspec: { gatewayClassName: oxigress, listeners: \
    [{ name: http, port: 80, protocol: HTTP }] }\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
    metadata: { name: web, namespace: default }\nspec: { parentRefs: [{ name: web }], hostnames: [route.test], \
    rules: [{ backendRefs: [{ name: shop, port: 80 }] }, { matches: [{ path: { value: /moved } }], filters: \
    [{ type: RequestRedirect, requestRedirect: { hostname: else.where } }] }] }\n";

/// The statuses of the Ingress and of the rules of the route.
fn statuses(shop: &Shop) -> Result<Vec<u16>> {
    let places = [("shop.test", "/"), ("route.test", "/"), ("route.test", "/moved")];
    let status = |(host, path)| Ok(get(shop, &Request::get(host, path))?.status);
    places.into_iter().map(status).collect()
}

fn serve(shop: &mut Shop, entries: &[(&str, &str)], expected: [u16; 3]) -> Result<()> {
    shop.write("settings.yaml", &config_map("settings", entries))?;
    until(&format!("{entries:?}"), || {
        let found = statuses(shop)?;
        ensure!(found == expected, "{found:?} and not {expected:?}");
        Ok(())
    })
}

/// A key that protects and cannot be read closes routes as it closes Ingresses, and a server of passwords for all is asked
/// for routes alone too.
#[test]
fn what_protects_every_location_protects_routes() {
    pass("configmap-routes", |directory| {
        let mut shop = shop(directory)?;
        shop.write("gateway.yaml", GATEWAY)?;
        serve(&mut shop, &[], [200, 200, 302])?;
        for entry in [("whitelist-source-range", "10.0.0.0/33"), ("global-auth-url", "htp://x")] {
            serve(&mut shop, &[entry], [503; 3])?;
        }
        let no = Endpoint::with("no", Behaviour::Status(401), IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let url = format!("http://127.0.0.1:{}/", no.address.port());
        serve(&mut shop, &[("global-auth-url", &url)], [401, 401, 302])?;
        let open = [("global-auth-url", url.as_str()), ("no-auth-locations", "/,/x")];
        serve(&mut shop, &open, [200, 200, 302])?;
        // No Ingress names the server any more.
        serve(&mut shop, &[("global-auth-url", &url)], [401, 401, 302])?;
        shop.write("shop.yaml", "$SERVICE(shop: a)")?;
        until("without the Ingress", || {
            let found = statuses(&shop)?;
            ensure!(found == [404, 401, 302], "{found:?}");
            Ok(())
        })
    });
}
