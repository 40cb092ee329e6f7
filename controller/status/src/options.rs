//! What the operator decided about status and Events.

use oxigress_objects::Key;
use std::time::Duration;

/// What the operator decided at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `--update-status`
    pub writes_status: bool,
    /// `--update-status-on-shutdown`
    pub empties_status: bool,
    /// `--status-update-interval`; less than five seconds count as five.
    pub update_interval: Duration,
    /// `--publish-service`
    pub publish_service: Option<Key>,
    /// `--publish-status-address`, as written.
    pub publish_status_address: String,
    /// `--report-node-internal-ip-address`
    pub report_node_internal_ip_address: bool,
    /// Unless `--disable-leader-election`.
    pub has_election: bool,
    /// `--election-id`
    pub election_id: String,
    /// `--election-ttl`
    pub election_ttl: Duration,
    /// Unless `--disable-sync-events`.
    pub writes_events: bool,
}
