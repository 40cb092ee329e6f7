//! Which Gateway has which address for itself.
//!
//! Shape:   `--gateway-addresses` is what there is to be had. A Gateway has the ones that it names, else one that is free; when
//!          none is left it is served on the addresses that it shares with Ingresses.
//! Order:   the older one first, and then by a hash of the name: who comes takes nothing from who is there.

use crate::Options;
use oxigress_objects::Key;
use oxigress_objects::gateway::Gateway;
use oxigress_objects::gateway_status::{Addresses, Condition};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The address of a Gateway, or why it has none.
pub enum Place {
    /// The addresses that all share.
    Shared,
    /// These alone, one at least.
    Own(Vec<IpAddr>),
    /// It is served nowhere.
    Nowhere(Refusal),
}

/// Why a Gateway does not have what it asks for.
pub enum Refusal {
    /// It is not accepted.
    Unsupported(Condition),
    /// It is not programmed.
    Unusable(Condition),
}

impl Place {
    /// The address in the names of its hosts.
    pub fn own(&self) -> &[IpAddr] {
        match self {
            Place::Own(addresses) => addresses,
            Place::Shared | Place::Nowhere(_) => &[],
        }
    }

    /// As its status has it.
    pub fn published(&self) -> Addresses {
        match self {
            Place::Shared => Addresses::Shared,
            Place::Own(addresses) => Addresses::Own(addresses.clone()),
            Place::Nowhere(_) => Addresses::Own(Vec::new()),
        }
    }
}

/// The places of Gateways, which come by age.
pub fn assign<'w>(
    options: &Options,
    gateways: impl Iterator<Item = (&'w Key, &'w Gateway)>,
) -> Vec<(&'w Key, Place)> {
    let mut taken = BTreeSet::new();
    let places = gateways.map(|(key, gateway)| {
        let place = place(options, key, gateway, &taken);
        taken.extend(place.own());
        (key, place)
    });
    places.collect()
}

fn place(options: &Options, key: &Key, gateway: &Gateway, taken: &BTreeSet<IpAddr>) -> Place {
    let refused = |reason, message: String| {
        Place::Nowhere(Refusal::Unsupported(Condition::no("Accepted", reason, message)))
    };
    if gateway.spec.infrastructure.parameters_ref.is_some() {
        let message = "spec.infrastructure.parametersRef is not read: remove it, and set flags or the ConfigMap";
        return refused("InvalidParameters", message.into());
    }
    let asked = &gateway.spec.addresses;
    if let Some(odd) = asked.iter().find(|address| !address.routability.is_empty()) {
        let message =
            format!("spec.addresses: routability {} is not served: remove it", odd.routability);
        return refused("UnsupportedAddress", message);
    }
    let is_ip = |kind: &Option<String>| kind.as_deref().is_none_or(|kind| kind == "IPAddress");
    if let Some(odd) = asked.iter().find(|address| !is_ip(&address.r#type)) {
        let message = format!("spec.addresses: {} is no IP address: name one, or none", odd.value);
        return refused("UnsupportedAddress", message);
    }
    let mut own: Vec<IpAddr> = Vec::new();
    for address in asked.iter().filter(|address| !address.value.is_empty()) {
        let value =
            address.value.parse().ok().filter(|value| {
                options.gateway_addresses.contains(value) && !taken.contains(value)
            });
        let Some(value) = value else { return unusable(&address.value) };
        own.push(value);
    }
    if !own.is_empty() {
        return Place::Own(own);
    }
    match (free(options, key, taken), asked.is_empty()) {
        (Some(address), _) => Place::Own(vec![address]),
        (None, true) => Place::Shared,
        // Any will do, and those that are shared are addresses, too.
        (None, false) if options.gateway_addresses.is_empty() => Place::Shared,
        (None, false) => unusable("any"),
    }
}

fn unusable(address: &str) -> Place {
    let message = format!(
        "spec.addresses: {address} is not one of --gateway-addresses, or another Gateway has it: remove it"
    );
    let condition = Condition::no("Programmed", "AddressNotUsable", message);
    Place::Nowhere(Refusal::Unusable(condition))
}

/// One that nobody has, from a place on that the name tells.
fn free(options: &Options, key: &Key, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let all = &options.gateway_addresses;
    // FNV-1a: another build finds the same one.
    let hash = key.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let first = usize::try_from(hash % u64::try_from(all.len()).ok().filter(|n| *n > 0)?).ok()?;
    let turned = all.iter().skip(first).chain(all.iter().take(first));
    turned.copied().find(|address| !taken.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_objects::gateway::{GatewayAddress, GatewaySpec};

    fn gateway(addresses: &[(Option<&str>, &str)]) -> Gateway {
        let address = |(kind, value): &(Option<&str>, &str)| GatewayAddress {
            r#type: kind.map(Into::into),
            value: (*value).into(),
            ..GatewayAddress::default()
        };
        let addresses = addresses.iter().map(address).collect();
        Gateway { spec: GatewaySpec { addresses, ..GatewaySpec::default() }, ..Gateway::default() }
    }

    fn with_parameters() -> Gateway {
        let mut gateway = gateway(&[(None, "10.0.0.1")]);
        gateway.spec.infrastructure.parameters_ref = Some(Default::default());
        gateway
    }

    fn within_the_cluster() -> Gateway {
        let mut gateway = gateway(&[(None, "10.0.0.1")]);
        gateway.spec.addresses[0].routability = "Cluster".into();
        gateway
    }

    fn told(options: &Options, gateways: &[Gateway]) -> Vec<String> {
        let keys: Vec<_> =
            (0..gateways.len()).map(|number| Key::new("a", format!("g{number}"))).collect();
        let all = assign(options, keys.iter().zip(gateways));
        let tell = |(_, place): (&Key, Place)| match place {
            Place::Shared => "shared".into(),
            Place::Own(own) => own.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Place::Nowhere(Refusal::Unsupported(why) | Refusal::Unusable(why)) => why.reason.into(),
        };
        all.into_iter().map(tell).collect()
    }

    #[test]
    fn the_older_one_has_what_both_want_and_the_rest_is_shared() {
        let parse = |text: &&str| text.parse().unwrap();
        let gateway_addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].iter().map(parse).collect();
        let options = Options { gateway_addresses, ..Options::default() };
        let all = [
            gateway(&[(None, "10.0.0.2")]),
            gateway(&[(Some("IPAddress"), "10.0.0.2")]),
            gateway(&[(Some("Hostname"), "a.test")]),
            gateway(&[(None, "10.0.0.9")]),
            gateway(&[(None, "10.0.0.1")]),
            gateway(&[(None, "")]),
            gateway(&[]),
            gateway(&[(None, "")]),
            with_parameters(),
            within_the_cluster(),
        ];
        assert_eq!(
            told(&options, &all),
            [
                "10.0.0.2",
                "AddressNotUsable",
                "UnsupportedAddress",
                "AddressNotUsable",
                "10.0.0.1",
                "10.0.0.3",
                "shared",
                "AddressNotUsable",
                "InvalidParameters",
                "UnsupportedAddress",
            ]
        );
        let none = Options::default();
        assert_eq!(told(&none, &all[5..8]), ["shared", "shared", "shared"]);
    }

    #[test]
    fn who_comes_takes_nothing_from_who_is_there() {
        let address = |number| IpAddr::from([10, 0, 0, number]);
        let gateway_addresses = (0..16).map(address).collect();
        let options = Options { gateway_addresses, ..Options::default() };
        let all: Vec<_> = (0..16).map(|_| gateway(&[])).collect();
        let every = told(&options, &all);
        assert_eq!(every.iter().collect::<BTreeSet<_>>().len(), 16);
        for number in 0..16 {
            assert_eq!(told(&options, &all[..number]), every[..number]);
        }
    }
}
