//! What every property of changes checks: after each of them all equals what is translated from scratch.

use super::*;

/// Sees the objects step by step.
pub fn check_increments(
    mode: HostOwnership,
    regex_per_host: bool,
    steps: Vec<Vec<Step>>,
) -> Result<(), TestCaseError> {
    let options = options(mode, regex_per_host);
    let mut translator = Translator::new(options.clone());
    let mut world = World::default();
    let mut served = Snapshot::default();
    let mut said = Verdicts::new();
    let mut told = BTreeMap::new();
    for step in steps {
        let mut changed = Changed::default();
        for step in step {
            match step {
                Step::Seen(seen) => world.apply(seen, &mut changed),
                Step::Answer(answer) => {
                    let name = DnsName::parse("x.test").unwrap();
                    world.answer(name, answer, &mut changed);
                }
            }
        }
        let (patch, verdicts) = translator.update(&world, &changed);
        prop_assert_eq!(patch.contradiction(), None);
        patch.apply(&mut served);
        for (object, verdict) in verdicts {
            match verdict {
                Some(verdict) => drop(said.insert(object, verdict)),
                None => drop(said.remove(&object)),
            }
        }
        let mut scratch = Translator::new(options.clone());
        scratch.update(&world, &world.all());
        prop_assert_eq!(&translator.places, &scratch.places);
        prop_assert_eq!(&translator.gateways.backends, &scratch.gateways.backends);
        let mut scratch = scratch.into_translation();
        let open = &served.settings.listener_ports;
        prop_assert!(open.is_superset(&scratch.snapshot.settings.listener_ports));
        // A port that nobody asks for any more stays open until others are opened.
        scratch.snapshot.settings.listener_ports.clone_from(open);
        prop_assert_eq!(&served, &scratch.snapshot);
        prop_assert_eq!(&said, &scratch.verdicts);
        prop_assert_eq!(translator.statuses(), &scratch.statuses);
        for (object, status) in translator.take_statuses() {
            match status {
                Some(status) => drop(told.insert(object, status)),
                None => drop(told.remove(&object)),
            }
        }
        prop_assert_eq!(&told, translator.statuses());
        references::check(&served)?;
        for server in served.servers.values() {
            let paths: BTreeSet<_> = server.rules.iter().map(|rule| &rule.path).collect();
            prop_assert_eq!(paths.len(), server.rules.len());
        }
    }
    Ok(())
}

/// Flags by which all kinds of objects count.
fn options(mode: HostOwnership, regex_per_host: bool) -> Options {
    Options {
        host_ownership: mode,
        regex_per_host,
        configmap: Some(Key::new("n", "a")),
        default_backend_service: Some(Key::new("n", "c")),
        default_ssl_certificate: Some(Key::new("n", "c")),
        watch_ingress_without_class: true,
        destinations: own_port(8_081),
        ssl_passthrough: true,
        zone: Some("a".into()),
        node: Some("b".into()),
        ..Options::default()
    }
}
