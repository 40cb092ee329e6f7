//! `oxigress check DIR` and `check --cluster`: what would be served of a folder or of a cluster, and what not; of each
//! annotation, whether it means the same.

use crate::flags::Flags;
use crate::{cluster, command};
use anyhow::Context;
use oxigress_core::text::line::Escaped;
use oxigress_objects::verdict::Severity;
use oxigress_objects::{Changed, Kind, ObjectRef, World};
use oxigress_provider::folder::Folder;
use oxigress_provider::kubernetes::Kubernetes;
use oxigress_provider::{Batch, Source};
use oxigress_translate::annotation::table::{self, Status};
use oxigress_translate::{ReferenceIndex, Translation, translate};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long an API server may take for everything; it is tried again and again within.
const TIMEOUT: Duration = Duration::from_secs(60);

/// All that an API server has of what is read, once.
async fn read_cluster(flags: &Flags) -> anyhow::Result<Batch> {
    let client = cluster::reach(&flags.cluster).await?;
    let mut source = Kubernetes::watch(
        client,
        &flags.provider_options(),
        Box::new(ReferenceIndex::new(flags.options(Default::default()))),
    );
    let batch = tokio::time::timeout(TIMEOUT, source.next()).await;
    batch.with_context(|| {
        format!("the API server has not told everything within {} s: see above", TIMEOUT.as_secs())
    })
}

/// Prints one line an object there is something to say about, and each annotation of each Ingress; fails if something
/// is not served, or an annotation is invalid or not supported. Objects of kinds that are not read are only told.
/// Without a folder it is the cluster.
pub async fn run(folder: Option<&Path>, flags: &Flags) -> anyhow::Result<ExitCode> {
    let batch = match folder {
        Some(folder) => {
            Folder::read_once(folder).with_context(|| format!("{}", folder.display()))?
        }
        None => read_cluster(flags).await?,
    };
    let mut world = World::default();
    let mut changed = Changed::default();
    world.hide_classes(batch.hides_classes, &mut changed);
    batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
    let options = flags.of_folder(folder).options(Default::default());
    let translation = translate(&world, &options);
    let annotations = annotations(&world, flags, &translation);
    command::print(text(&batch.problems, &annotations, &translation).as_bytes())?;
    let is_rejected = translation.verdicts.values().any(|v| v.severity == Severity::Rejected);
    let is_problem = batch.problems.iter().any(|problem| !problem.is_other_kind);
    let is_none_served = !world.ingresses.is_empty() && translation.snapshot.servers.is_empty();
    let is_other = |line: &Line| matches!(line.word, "invalid" | "unsupported");
    let is_other = annotations.values().flatten().any(is_other);
    Ok(if is_rejected || is_problem || is_none_served || is_other {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What becomes of annotations.
struct Line {
    word: &'static str,
    names: Vec<String>,
    how: String,
}

/// Of each Ingress that has any.
fn annotations(
    world: &World,
    flags: &Flags,
    translation: &Translation,
) -> BTreeMap<ObjectRef, Vec<Line>> {
    let mut all = BTreeMap::new();
    for (key, ingress) in &world.ingresses {
        let object = ObjectRef::new(Kind::Ingress, key.clone());
        let verdict = translation.verdicts.get(&object);
        let said = |name: &str| {
            let begin = format!("annotation {name}: ");
            let messages = verdict.into_iter().flat_map(|verdict| &verdict.messages);
            messages.filter_map(|message| message.strip_prefix(&begin)).next()
        };
        let mut lines: Vec<Line> = Vec::new();
        for key in ingress.annotations.keys() {
            let name = key.strip_prefix(&flags.annotations_prefix);
            let Some(name) = name.and_then(|rest| rest.strip_prefix('/')) else { continue };
            let unknown = match table::nearest(name) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => "ingress-nginx does not know it either".into(),
            };
            let (word, how) = match (table::find(name).map(|row| row.status), said(name)) {
                (Some(Status::Unsupported(how)), None) => ("without effect", how),
                (Some(Status::Unsupported(_)), Some(why)) => ("unsupported", why),
                (_, Some(why)) => ("invalid", why),
                (Some(Status::Same), None) => ("same", ""),
                (Some(Status::Different(how)), None) => ("different", how),
                (None, None) => ("unknown", &*unknown),
            };
            match lines.iter_mut().find(|line| line.word == word && line.how == how) {
                Some(line) => line.names.push(name.into()),
                None => lines.push(Line { word, names: vec![name.into()], how: how.into() }),
            }
        }
        if !lines.is_empty() {
            all.insert(object, lines);
        }
    }
    all
}

fn text(
    problems: &[impl Display],
    annotations: &BTreeMap<ObjectRef, Vec<Line>>,
    translation: &Translation,
) -> String {
    let problems = problems.iter().map(ToString::to_string);
    let verdicts =
        translation.verdicts.iter().map(|(object, verdict)| format!("{object}: {verdict}"));
    let annotations = annotations.iter().flat_map(|(object, lines)| {
        lines.iter().map(move |Line { word, names, how }| {
            let colon = if how.is_empty() { "" } else { ": " };
            format!("{object}: {word}: {}{colon}{how}", names.join(", "))
        })
    });
    let snapshot = &translation.snapshot;
    let total = format!(
        "{} hosts, {} paths, {} backends, {} certificates",
        snapshot.servers.len(),
        snapshot.servers.values().map(|server| server.rules.len()).sum::<usize>(),
        snapshot.backends.len(),
        snapshot.certificates.len()
    );
    let lines = problems.chain(verdicts).chain(annotations).chain([total]);
    lines.map(|line| format!("{}\n", Escaped(line))).collect()
}
