//! The process of one Pod.

use super::HOST;
use super::log::Logs;
use crate::network;
use crate::process::Process;
use crate::wait::until_async;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, KeyToPath, Pod, Secret, Volume, VolumeMount,
};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes a network namespace whose one link leads to that of the test, and runs what follows in it. `$1` is the Pod's address,
/// `$2` its link in the test's namespace, `$3` the address there.
const NAMESPACE: &str = r#"
exec 3< /proc/self/ns/net
exec unshare --net sh -euc '
ip link set lo up
ip link add eth0 type veth peer name "$2" netns /proc/self/fd/3
ip addr add "$1/32" dev eth0
ip link set eth0 up
nsenter --net=/proc/self/fd/3 sh -euc "ip link set $2 up; ip route add $1 dev $2 src $3"
ip route add default dev eth0 src "$1"
shift 3
exec 3<&-
exec "$@"
' sh "$@"
"#;

/// The content of a Pod's volumes, by volume and path.
pub type Files = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// Reads the Secrets and ConfigMaps that a Pod mounts; waits for them.
pub async fn files(client: &Client, pod: &Pod) -> Result<Files> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut all = Files::new();
    for volume in volumes {
        let found = until_async("a volume", || content(client, pod, volume)).await?;
        all.insert(volume.name.clone(), found);
    }
    Ok(all)
}

async fn content(client: &Client, pod: &Pod, volume: &Volume) -> Result<BTreeMap<String, Vec<u8>>> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut found = BTreeMap::new();
    if let Some(from) = &volume.secret {
        let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
        let secret = secrets.get(from.secret_name.as_deref().unwrap_or_default()).await?;
        found.extend(secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)));
        return Ok(renamed(found, from.items.as_deref()));
    }
    if let Some(from) = &volume.config_map {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
        let map = maps.get(&from.name).await?;
        found.extend(map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes())));
        return Ok(renamed(found, from.items.as_deref()));
    }
    Ok(found)
}

fn renamed(
    mut all: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
) -> BTreeMap<String, Vec<u8>> {
    let Some(items) = items else { return all };
    let one = |item: &KeyToPath| Some((item.path.clone(), all.remove(&item.key)?));
    items.iter().filter_map(one).collect()
}

/// Where the volumes of a Pod are, by name.
pub type Volumes = BTreeMap<String, PathBuf>;

/// Writes volumes into a folder.
pub fn write(folder: &Path, files: Files) -> Result<Volumes> {
    let mut volumes = Volumes::new();
    for (volume, files) in files {
        let at = folder.join(&volume);
        fs::create_dir_all(&at)?;
        for (name, bytes) in files {
            fs::write(at.join(name), bytes)?;
        }
        volumes.insert(volume, at);
    }
    Ok(volumes)
}

/// A Pod that runs.
pub struct Running {
    address: Ipv4Addr,
    _process: Process,
}

impl Running {
    /// Starts the process of the `number`th Pod and waits for its first word.
    pub async fn start(
        program: &Path,
        number: u16,
        pod: &Pod,
        volumes: &Volumes,
        logs: &Logs,
    ) -> Result<Self> {
        let [high, low] = number.to_be_bytes();
        let address = Ipv4Addr::new(10, 245, high + 1, low);
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let container = container.context("a container")?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=KILL", "sh", "-euc", NAMESPACE, "sh", &address.to_string()]);
        command.args([&format!("pod{number}"), HOST]).arg(program).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for variable in container.env.iter().flatten() {
            command.env(&variable.name, value(variable, pod, address, container, volumes));
        }
        let (reader, writer) = std::io::pipe()?;
        let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        logs.follow(name.clone(), reader);
        let start = move || Process::start_into("pod", &mut command, writer.into());
        let process = network::keep(start)??;
        until_async("a Pod's first word", || async {
            ensure!(!logs.since(&name, 0).is_empty(), "{name} says nothing");
            Ok(())
        })
        .await?;
        Ok(Running { address, _process: process })
    }

    /// What the kubelet would say.
    pub fn status(&self, pod: &Pod) -> Value {
        let now = "2026-01-01T00:00:00Z";
        let kinds = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
        let yes = |kind| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
                "containerID": format!("stand-in://{}", self.address),
                "ready": true, "started": true, "state": {"running": {"startedAt": now}},
            })
        });
        json!({
            "phase": "Running", "hostIP": HOST, "podIP": self.address,
            "podIPs": [{"ip": self.address}], "startTime": now,
            "conditions": kinds.map(yes), "containerStatuses": containers.collect::<Vec<_>>(),
        })
    }
}

/// The value of a variable; a path below a mount is where the volume is.
fn value(
    variable: &EnvVar,
    pod: &Pod,
    address: Ipv4Addr,
    container: &Container,
    volumes: &Volumes,
) -> String {
    let source = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
    if let Some(source) = source {
        return match &*source.field_path {
            "metadata.name" => pod.name_any(),
            "metadata.namespace" => pod.namespace().unwrap_or_default(),
            "status.podIP" => address.to_string(),
            _ => String::new(),
        };
    }
    let value = variable.value.clone().unwrap_or_default();
    let below = |mount: &VolumeMount| {
        let file = value.strip_prefix(&mount.mount_path)?.strip_prefix('/')?;
        Some(volumes.get(&mount.name)?.join(file).display().to_string())
    };
    container.volume_mounts.iter().flatten().find_map(below).unwrap_or(value)
}
