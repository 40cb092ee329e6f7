//! What the controller knows: its writes, the certificates and Ingresses that lead nowhere.

use super::ChangeToLive;
use oxigress_core::model::Snapshot;
use oxigress_core::telemetry::metrics::{labels, sample, title, with_constant};
use oxigress_objects::{Key, World};
use oxigress_provider::kubernetes::WatchHealth;
use oxigress_publish::Writes;
use oxigress_translate::pace::Pace;
use oxigress_translate::secret_behind;
use std::collections::BTreeMap;
use std::time::SystemTime;
use tokio::sync::oneshot;

/// A request for the controller's part of `/metrics`.
pub struct Scrape {
    /// The labels that every series has.
    pub constant: Vec<(String, String)>,
    /// The channel that the text is sent to.
    pub reply: oneshot::Sender<String>,
}

/// The text. `snapshot` is what is served of `world`.
pub fn text(
    world: &World,
    snapshot: &Snapshot,
    writes: &Writes,
    live: &ChangeToLive,
    constant: &[(String, String)],
) -> String {
    let mut out = live.text(&labels(&with_constant(constant, &[])));
    let mut one = |name: &str, kind, help, labels: &[(&str, &str)], value: f64| {
        title(&mut out, name, kind, help);
        sample(&mut out, name, &with_constant(constant, labels), value);
    };
    let build = [
        ("build", ""),
        ("release", env!("CARGO_PKG_VERSION")),
        ("repository", env!("CARGO_PKG_REPOSITORY")),
    ];
    one("build_info", "gauge", "The program's version", &build, 1.0);
    one("success", "counter", "Configurations that nginx took", &[], writes.applied as f64);
    one("errors", "counter", "Configurations that nginx refused", &[], writes.refused as f64);
    let help =
        "Records that nginx does not get: refused, without room, or beyond a namespace's limit";
    one("withheld_records", "gauge", help, &[], writes.withheld as f64);
    let is_applied = f64::from(u8::from(writes.is_last_applied));
    let help = "1 if nginx took the last configuration";
    one("config_last_reload_successful", "gauge", help, &[], is_applied);
    let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).ok();
    let at = writes.applied_at.and_then(since).map_or(0.0, |at| at.as_secs() as f64);
    let help = "When nginx last took a configuration";
    one("config_last_reload_successful_timestamp_seconds", "gauge", help, &[], at);
    certificates(&mut out, world, snapshot, constant);
    orphans(&mut out, world, snapshot, constant);
    out
}

/// Whether this replica is the one that writes status, by the Lease of that name.
pub fn leadership(lease: &str, is_held: bool, constant: &[(String, String)]) -> String {
    let mut out = String::new();
    let name = "leader_election_status";
    title(&mut out, name, "gauge", "1 if this replica writes status and Events");
    let value = f64::from(u8::from(is_held));
    sample(&mut out, name, &with_constant(constant, &[("name", lease)]), value);
    out
}

/// Changes that their namespaces cannot pay for at once.
pub fn pace(pace: &Pace, constant: &[(String, String)]) -> String {
    let mut out = String::new();
    let mut one = |name: &str, kind, help, value: f64| {
        title(&mut out, name, kind, help);
        sample(&mut out, name, &with_constant(constant, &[]), value);
    };
    let help = "Changes that the rate limit of their namespace delays now";
    one("waiting_changes", "gauge", help, pace.waiting() as f64);
    let help = "Changes that the rate limit of their namespace has delayed";
    one("delayed_changes", "counter", help, pace.delayed() as f64);
    out
}

/// Whether the API server is heard.
pub fn source(watch_health: &WatchHealth, constant: &[(String, String)]) -> String {
    let mut out = String::new();
    let mut one = |name: &str, help, value: f64| {
        title(&mut out, name, "gauge", help);
        sample(&mut out, name, &with_constant(constant, &[]), value);
    };
    let is_whole = f64::from(u8::from(watch_health.is_whole()));
    one("source_synchronised", "1 if every watch of the API server is open", is_whole);
    let help = "Seconds since the least recently active watch received data; an open one does once a minute";
    one("source_silence_seconds", help, watch_health.silence().as_secs_f64());
    out
}

/// Those that are served, by host. All replicas tell them, since each one serves them; of the
/// reference's the leader only.
fn certificates(
    out: &mut String,
    world: &World,
    snapshot: &Snapshot,
    constant: &[(String, String)],
) {
    let class = constant.iter().find(|(name, _)| name == "controller_class");
    let class = class.map_or("", |(_, value)| value);
    let served: Vec<_> = snapshot
        .names
        .iter()
        .filter_map(|(host, id)| {
            let key = secret_behind(id)?;
            let history = world.secrets.get(&key)?;
            Some((host, key, history.secret.pair().or(history.last_good.as_ref())?))
        })
        .collect();
    if served.is_empty() {
        return;
    }
    let (expires, info) = ("ssl_expire_time_seconds", "ssl_certificate_info");
    let mut infos = String::new();
    title(out, expires, "gauge", "When the certificate of a host expires");
    title(&mut infos, info, "gauge", "The certificate of a host");
    for (host, key, pair) in &served {
        let leaf = &pair.leaf;
        let identifier = leaf.identifier();
        let common = [
            ("class", class),
            ("host", host.as_str()),
            ("identifier", &identifier),
            ("namespace", &key.namespace),
            ("secret_name", &key.name),
        ];
        sample(out, expires, &common, leaf.expires as f64);
        let more = [
            ("issuer_common_name", &*leaf.issuer_common_name),
            ("issuer_organization", &leaf.issuer_organization),
            ("public_key_algorithm", leaf.algorithm),
            ("serial_number", &leaf.serial),
        ];
        let mut all = [&common[..], &more].concat();
        all.sort_unstable();
        sample(&mut infos, info, &all, 1.0);
    }
    out.push_str(&infos);
}

/// Ingresses with a path whose Service is not there, or has no endpoints.
fn orphans(out: &mut String, world: &World, snapshot: &Snapshot, constant: &[(String, String)]) {
    let mut ingresses: BTreeMap<(&str, &str), [bool; 2]> = BTreeMap::new();
    for rule in snapshot.servers.values().flat_map(|server| &server.rules) {
        let origin = &rule.origin;
        let found = ingresses.entry((&origin.namespace, &origin.ingress)).or_default();
        if origin.ingress.is_empty() || origin.service.is_empty() {
            continue;
        }
        let service = Key::new(&origin.namespace, &origin.service);
        let set = rule.backend.as_ref().and_then(|id| snapshot.endpoints.get(id));
        let [no_service, no_endpoint] = found;
        match world.services.contains_key(&service) {
            false => *no_service = true,
            true => *no_endpoint |= set.is_none_or(|set| set.as_slice().is_empty()),
        }
    }
    ingresses.retain(|(_, ingress), _| !ingress.is_empty());
    if ingresses.is_empty() {
        return;
    }
    let name = "orphan_ingress";
    title(
        out,
        name,
        "gauge",
        "1 for an Ingress with a path whose Service or endpoints are missing",
    );
    for ((namespace, ingress), kinds) in ingresses {
        for (kind, is_orphan) in ["no-service", "no-endpoint"].iter().zip(kinds) {
            let labels = [("ingress", ingress), ("namespace", namespace), ("type", kind)];
            sample(out, name, &with_constant(constant, &labels), f64::from(u8::from(is_orphan)));
        }
    }
}
