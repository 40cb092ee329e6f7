//! What the operator decided about status and Events.

use oxigress_objects::Key;
use std::time::Duration;

/// What the operator decided at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The value of `--update-status`.
    pub writes_status: bool,
    /// The value of `--update-status-on-shutdown`.
    pub empties_status: bool,
    /// `--status-update-interval`; less than five seconds count as five.
    pub update_interval: Duration,
    /// The value of `--publish-service`.
    pub publish_service: Option<Key>,
    /// `--publish-status-address`, as written.
    pub publish_status_address: String,
    /// The value of `--report-node-internal-ip-address`.
    pub report_node_internal_ip_address: bool,
    /// Whether `--disable-leader-election` is absent.
    pub has_election: bool,
    /// The value of `--election-id`.
    pub election_id: String,
    /// The value of `--election-ttl`.
    pub election_ttl: Duration,
    /// The value of `--gateway-controller-name`.
    pub gateway_controller_name: String,
    /// Whether `--disable-sync-events` is absent.
    pub writes_events: bool,
}
