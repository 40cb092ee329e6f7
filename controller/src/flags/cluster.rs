//! Flags about the Kubernetes cluster: where its API is, what is watched, whose status is written.
//!
//! Source:  ingress-nginx's controller.

use super::MaybeKey;
use clap::{ArgAction, Args};
use kube::core::Selector;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What the operator says about the cluster. None of it counts with `--manifests`, but for the grace periods and
/// what translate reads.
#[derive(Args, Clone, Debug)]
pub struct ClusterFlags {
    /// kubeconfig of the API server; by default the pod's own, then $KUBECONFIG
    #[arg(long, value_name = "FILE", value_parser = optional_path)]
    pub kubeconfig: Option<MaybePath>,
    /// URL of the API server, in place of the kubeconfig's or the pod's
    #[arg(long, value_name = "URL", default_value = "")]
    pub apiserver_host: String,
    /// Certificates that sign the one of --apiserver-host; by default the system's
    #[arg(long, value_name = "FILE", value_parser = optional_path)]
    pub certificate_authority: Option<MaybePath>,
    /// Serve Ingresses of namespaces with these labels only: `team=shop,stage in (test, live)`
    #[arg(long, value_name = "SELECTOR", value_parser = super::selector::parse)]
    pub watch_namespace_selector: Option<Selector>,
    /// Prefer endpoints of this zone or node where the Service asks for it
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub enable_topology_aware_routing: bool,
    /// Zone of this program; by default the Node's label topology.kubernetes.io/zone
    #[arg(long, value_name = "ZONE", default_value = "")]
    pub zone: String,
    /// Node of this program; by default $NODE_NAME
    #[arg(long, value_name = "NAME", default_value = "")]
    pub node_name: String,

    /// Write the addresses of this controller into the status of Ingresses
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub update_status: bool,
    /// Empty the status when the last replica ends
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub update_status_on_shutdown: bool,
    /// Seconds between two looks at the addresses for the status, at least 5
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub status_update_interval: u64,
    /// Write the addresses of this Service into the status of Ingresses
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = super::optional_key)]
    pub publish_service: Option<MaybeKey>,
    /// Write these addresses or names into the status, separated by commas
    #[arg(long, value_name = "ADDRESSES", default_value = "")]
    pub publish_status_address: String,
    /// Write the internal addresses of nodes into the status, also where they have external ones
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub report_node_internal_ip_address: bool,
    /// Name of the Lease by which replicas elect the one that writes status
    #[arg(long, value_name = "NAME", default_value = "ingress-controller-leader")]
    pub election_id: String,
    /// How long a replica that is gone stays elected, such as 30s
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub election_ttl: Duration,
    /// Elect nobody: no status is written, and every replica writes Events
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub disable_leader_election: bool,
    /// Write no Events
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub disable_sync_events: bool,

    /// Address and port of the admission webhook, such as :8443; by default none
    #[arg(long, value_name = "ADDRESS", default_value = "", value_parser = listen)]
    pub validating_webhook: MaybeAddress,
    /// Certificate of the webhook; read again when it changes
    #[arg(long, value_name = "FILE", value_parser = optional_path)]
    pub validating_webhook_certificate: Option<MaybePath>,
    /// Private key of the webhook; read again when it changes
    #[arg(long, value_name = "FILE", value_parser = optional_path)]
    pub validating_webhook_key: Option<MaybePath>,
    /// Let the webhook compare only hosts and paths of an Ingress with others
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, value_parser = super::boolean, action = ArgAction::Set)]
    pub disable_full_test: bool,

    /// Seconds after SIGTERM in which everything is served as before, but not ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub shutdown_grace_period: u64,
    /// Seconds for which the program stays after nginx has ended
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub post_shutdown_grace_period: u64,
}

impl ClusterFlags {
    /// What the writers of status and Events need of them.
    pub fn status_options(&self, gateway_controller_name: &str) -> oxigress_status::Options {
        oxigress_status::Options {
            writes_status: self.update_status,
            empties_status: self.update_status_on_shutdown,
            update_interval: Duration::from_secs(self.status_update_interval),
            publish_service: super::key_of(&self.publish_service),
            publish_status_address: self.publish_status_address.clone(),
            report_node_internal_ip_address: self.report_node_internal_ip_address,
            has_election: !self.disable_leader_election,
            election_id: self.election_id.clone(),
            election_ttl: self.election_ttl,
            gateway_controller_name: gateway_controller_name.to_owned(),
            writes_events: !self.disable_sync_events,
        }
    }

    /// What the admission webhook needs of them.
    pub fn admission_options(&self) -> oxigress_admission::Options {
        oxigress_admission::Options {
            listen: self.validating_webhook.0,
            certificate: path_of(&self.validating_webhook_certificate).cloned(),
            key: path_of(&self.validating_webhook_key).cloned(),
        }
    }

    /// The time between a request to end and the end.
    pub fn shutdown_grace_period(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_period)
    }

    /// What namespaces have to be labelled with; none: all are watched.
    pub fn namespace_selector(&self) -> Option<&Selector> {
        self.watch_namespace_selector.as_ref().filter(|selector| !selector.selects_all())
    }

    /// The zone that requests come from, if somebody said so and it counts.
    pub fn own_zone(&self) -> Option<String> {
        let is_wanted = self.enable_topology_aware_routing && !self.zone.is_empty();
        is_wanted.then(|| self.zone.clone())
    }

    /// The Node that requests come from, if it is known and counts.
    pub fn own_node(&self) -> Option<String> {
        let name = match self.node_name.as_str() {
            "" => std::env::var("NODE_NAME").unwrap_or_default(),
            name => name.into(),
        };
        (self.enable_topology_aware_routing && !name.is_empty()).then_some(name)
    }
}

/// A file, or nothing for the empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaybePath(pub Option<PathBuf>);

/// An address to listen on, or nothing for the empty text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaybeAddress(pub Option<SocketAddr>);

/// The file that a flag names.
pub fn path_of(flag: &Option<MaybePath>) -> Option<&PathBuf> {
    flag.as_ref().and_then(|path| path.0.as_ref())
}

fn optional_path(text: &str) -> Result<MaybePath, std::convert::Infallible> {
    Ok(MaybePath(Some(text).filter(|text| !text.is_empty()).map(PathBuf::from)))
}

/// As Go listens: `:8443` is every address.
fn listen(text: &str) -> Result<MaybeAddress, String> {
    let full = match text.strip_prefix(':') {
        _ if text.is_empty() => return Ok(MaybeAddress(None)),
        Some(port) => format!("[::]:{port}"),
        None => text.into(),
    };
    match full.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Ok(MaybeAddress(Some(address))),
        _ => Err("write :PORT or ADDRESS:PORT".into()),
    }
}

/// As Go writes durations, in hours, minutes, seconds and milliseconds; none and less mean 30 s.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a duration such as 30s or 1m30s".to_owned();
    let mut rest = text.trim_start_matches('-');
    let mut sum = Duration::ZERO;
    while !rest.is_empty() && rest != "0" {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u32 = rest[..digits].parse().map_err(|_| wrong())?;
        let units =
            rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        let unit = match &rest[digits..digits + units] {
            "h" => Duration::from_secs(3600),
            "m" => Duration::from_secs(60),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            _ => return Err(wrong()),
        };
        sum = unit.checked_mul(number).and_then(|part| sum.checked_add(part)).ok_or_else(wrong)?;
        rest = &rest[digits + units..];
    }
    Ok(if sum.is_zero() || text.starts_with('-') { Duration::from_secs(30) } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_addresses_are_written_as_go_writes_them() {
        for (text, seconds) in [("30s", 30), ("1m30s", 90), ("2h", 7200), ("0", 30), ("-5s", 30)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["30", "s", "1d", "99999999999h", "1.5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(listen(":8443").unwrap().0, "[::]:8443".parse().ok());
        assert_eq!(listen("127.0.0.1:8443").unwrap().0, "127.0.0.1:8443".parse().ok());
        assert_eq!(listen(""), Ok(MaybeAddress(None)));
        assert!(listen("8443").is_err() && listen(":0").is_err());
    }
}
