//! `oxigress migrate`: the objects of the Gateway API that mean what Ingresses mean, and what cannot be said in them.
//!
//! Shape:   [`said`] reads the annotations of one Ingress, [`paths`] makes rules of its paths, [`canary`] their shares,
//!          [`hosts`] knows whose a host is, [`tls`] its certificates, [`plan`] puts routes and Gateways together, [`object`]
//!          writes them.
//! Errors:  what cannot be said is told, by object and field, and nothing stands for it. An Ingress that protects in a way
//!          that no route can is left out as a whole.

mod canary;
mod hosts;
mod object;
mod paths;
mod plan;
mod said;
mod tls;

use crate::check::input;
use crate::command;
use crate::flags::Flags;
use crate::flags::migrate::Arguments;
use oxigress_core::model::HostPattern;
use oxigress_core::text::line::Escaped;
use oxigress_objects::verdict::acceptance::Acceptance;
use oxigress_objects::{Key, World};
use oxigress_provider::ProblemKind;
use oxigress_settings::Settings;
use oxigress_translate::{ServedHost, Translator};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

/// What there is to say about the objects that are printed.
#[derive(Debug, Default)]
pub struct Notes {
    /// What is missing in them.
    lost: Vec<String>,
    /// What they do otherwise.
    different: Vec<String>,
    /// What depends on which of them is the oldest.
    ages: Vec<String>,
}

impl Notes {
    /// Something of an Ingress is not said.
    fn lost(&mut self, ingress: &Key, what: impl std::fmt::Display) {
        self.lost.push(format!("Ingress {ingress}: {what}"));
    }

    /// Something is said, and means something else.
    fn different(&mut self, ingress: &Key, what: impl std::fmt::Display) {
        self.different.push(format!("Ingress {ingress}: {what}"));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (word, all) in
            [("not said", &self.lost), ("different", &self.different), ("ages", &self.ages)]
        {
            for line in all {
                let _ = writeln!(text, "{word}: {}", Escaped(line));
            }
        }
        text
    }
}

/// Prints the objects, and on standard error what they do not say. The exit code is 1 if something is missing.
pub async fn run(arguments: &Arguments, flags: &Flags) -> anyhow::Result<ExitCode> {
    let input::Objects { mut world, problems, flags, is_of_manifests } =
        arguments.input.read(flags).await?;
    let mut options = flags.options(Default::default());
    if is_of_manifests {
        crate::check::complete(&mut world, &mut options);
    }
    let map = options.configmap.as_ref().and_then(|key| world.config_maps.get(key));
    let (settings, _) = oxigress_settings::parse(map.map(AsRef::as_ref), &world.config_maps);
    let mut translator = Translator::new(options.clone());
    translator.update(&world, &world.all());
    let mut notes = Notes::default();
    let unread =
        problems.iter().filter(|problem| !matches!(problem.kind, ProblemKind::OtherKind(_)));
    notes.lost.extend(unread.map(ToString::to_string));
    let served = Served::of(&mut translator, &mut notes);
    let names = plan::Names {
        gateway: arguments.gateway.clone(),
        controller: options.gateway_controller_name.clone(),
        prefix: options.annotations_prefix.clone(),
    };
    let yaml = migrate(&world, &settings, &served, &names, &mut notes)?;
    command::print(yaml.as_bytes())?;
    eprint!("{}", notes.text());
    Ok(if notes.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What translation makes of the Ingresses: of others there is nothing to say.
pub struct Served {
    /// Those that are served now, or a part of them.
    ingresses: BTreeSet<Key>,
    /// Whose their hosts are, and which of their paths are served.
    hosts: BTreeMap<HostPattern, ServedHost>,
}

impl Served {
    fn of(translator: &mut Translator, notes: &mut Notes) -> Self {
        let mut ingresses = BTreeSet::new();
        for (key, acceptance) in translator.take_acceptances() {
            match acceptance {
                Some(Acceptance::Served) => drop(ingresses.insert(key)),
                Some(Acceptance::Refused) => {
                    notes.lost(&key, "it is not served as it is: `oxigress check` says why");
                }
                None => {}
            }
        }
        Served { ingresses, hosts: translator.served_hosts() }
    }
}

/// The objects as YAML.
fn migrate(
    world: &World,
    settings: &Settings,
    served: &Served,
    names: &plan::Names,
    notes: &mut Notes,
) -> anyhow::Result<String> {
    plan::plan(world, settings, served, names, notes).yaml()
}

#[cfg(test)]
mod tests;
