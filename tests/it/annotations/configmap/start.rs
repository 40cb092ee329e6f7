//! What is known before the first start of nginx.

use super::*;

/// Leaves a ConfigMap behind as the controller role does, before nginx was ever started.
fn known_before(directory: &Directory) -> Result<()> {
    let (manifests, runtime) = (directory.join("manifests"), directory.join("run"));
    fs::create_dir_all(&manifests)?;
    fs::create_dir_all(&runtime)?;
    fs::write(
        manifests.join("settings.yaml"),
        config_map("settings", &[("server-tokens", "true")]),
    )?;
    let streams = r#"{"settings": {"server-tokens": "true"}}"#;
    Ok(fs::write(runtime.join("streams.json"), streams)?)
}

/// The line of nginx.conf about the key.
fn has_tokens(directory: &Directory) -> Result<bool> {
    Ok(fs::read_to_string(directory.join("run/nginx.conf"))?.contains("server_tokens on;"))
}

const STARTS_WITH_DEFAULTS: &str = "it starts with defaults";

#[test]
fn a_configmap_that_is_known_before_the_first_start_holds_from_it() {
    pass("configmap-first-start", |directory| {
        known_before(directory)?;
        let shop = shop(directory)?;
        ensure!(has_tokens(directory)?, "{}", shop.controller.output_tail());
        for text in [STARTS_WITH_DEFAULTS, RELOADS] {
            ensure!(logged(&shop, text) == 0, "{}", shop.controller.output_tail());
        }
        Ok(())
    });
}

#[test]
fn values_that_nginx_refused_at_its_start_are_tried_again() {
    pass("configmap-again", |directory| {
        known_before(directory)?;
        // Stands before nginx and refuses what is tried, as long as it is told to.
        let (refusal, tries) = (directory.join("refusal"), directory.join("tries"));
        let nginx = directory.join("nginx");
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = -t ] && [ -e {0} ]; then\n  echo x >> {1}\n  cat {0} >&2\n  exit 1\nfi\nexec {2} \"$@\"\n",
            refusal.display(),
            tries.display(),
            dist::nginx()?.display()
        );
        fs::write(&refusal, "nginx: [emerg] planted\n")?;
        fs::write(&nginx, script)?;
        fs::set_permissions(&nginx, Permissions::from_mode(0o755))?;
        let flag = format!("--nginx-binary={}", nginx.display());
        let mut shop = shop_with(directory, &[flag])?;
        ensure!(logged(&shop, STARTS_WITH_DEFAULTS) == 1, "{}", shop.controller.output_tail());
        ensure!(!has_tokens(directory)?);
        shop.serves("shop.test", "/", "a")?;
        until("a second try", || {
            let count = fs::read_to_string(&tries)?.lines().count();
            ensure!(count >= 2, "{count} tries");
            Ok(())
        })?;
        ensure!(logged(&shop, "planted") == 1, "{}", shop.controller.output_tail());
        let workers = shop.controller.worker_pids();
        fs::remove_file(&refusal)?;
        until("the reload", || {
            ensure!(logged(&shop, RELOADS) == 1, "{}", shop.controller.output_tail());
            let pids = shop.controller.worker_pids();
            ensure!(!pids.is_empty() && pids.iter().all(|pid| !workers.contains(pid)), "{pids:?}");
            Ok(())
        })?;
        ensure!(has_tokens(directory)?);
        reload_with(&mut shop, &[("server-tokens", "false")])?;
        shop.serves("shop.test", "/", "a")
    });
}
