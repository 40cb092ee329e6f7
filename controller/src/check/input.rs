//! Where the objects come from: a file, a folder, standard input, or an API server.

use crate::cluster;
use crate::flags::Flags;
use crate::flags::input::Input;
use anyhow::{Context, anyhow, bail};
use oxigress_objects::document::MAX_FILE_BYTES;
use oxigress_objects::{Changed, ObjectRef, World};
use oxigress_provider::folder::Folder;
use oxigress_provider::kubernetes::Kubernetes;
use oxigress_provider::{Batch, Problem, ProblemKind, ProblemPlace, Source as _};
use oxigress_translate::ReferenceIndex;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an API server may take for everything; it is tried again and again within.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What stands for standard input, in problems.
const STANDARD_INPUT: &str = "standard input";

/// Where the objects come from.
pub enum Source {
    /// The objects are read from an API server.
    Cluster,
    /// The manifests come from standard input, which `-` names.
    StandardInput,
    /// A file or a folder.
    Path(PathBuf),
}

impl Source {
    /// A file, a folder or standard input, as the command line names it.
    fn named(path: &Path) -> Self {
        match path.as_os_str() == "-" {
            true => Source::StandardInput,
            false => Source::Path(path.into()),
        }
    }

    /// Reads all objects once, without watching for changes.
    pub async fn read(&self, flags: &Flags) -> anyhow::Result<Batch> {
        match self {
            Source::Cluster => read_cluster(flags).await,
            Source::StandardInput => read_standard_input(),
            Source::Path(path) => read_path(path),
        }
    }
}

/// What was read.
pub struct Objects {
    /// The objects.
    pub world: World,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// The flags, with the folder that was read.
    pub flags: Flags,
    /// They are of manifests, which do not say all that a cluster has.
    pub is_of_manifests: bool,
}

impl Input {
    /// Reads them.
    pub async fn read(&self, flags: &Flags) -> anyhow::Result<Objects> {
        let is_of_manifests = !self.sources.is_empty();
        let batch = match is_of_manifests {
            true => self.read_all(flags).await?,
            false => Source::Cluster.read(flags).await?,
        };
        let (mut world, mut changed) = (World::default(), Changed::default());
        world.hide_classes(batch.hides_classes, &mut changed);
        batch.seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
        let flags = match self.sources.first() {
            None => flags.clone(),
            first => flags.of_folder(first.map(PathBuf::as_path)),
        };
        Ok(Objects { world, problems: batch.problems, flags, is_of_manifests })
    }

    /// The objects of all that is named. Of an object in several the first one counts, as of two files of a folder.
    async fn read_all(&self, flags: &Flags) -> anyhow::Result<Batch> {
        let mut all = Batch::default();
        let mut owners: BTreeMap<ObjectRef, &PathBuf> = BTreeMap::new();
        for source in &self.sources {
            let batch = Source::named(source).read(flags).await?;
            all.problems.extend(batch.problems);
            for seen in batch.seen {
                // The same one named twice says nothing else.
                let first = *owners.entry(seen.0.clone()).or_insert(source);
                if first == source {
                    all.seen.push(seen);
                    continue;
                }
                all.problems.push(Problem {
                    place: ProblemPlace::File { path: source.clone(), document: None },
                    kind: ProblemKind::Unusable,
                    message: format!(
                        "{} is defined twice; that of {} counts, this one is ignored: remove one",
                        seen.0,
                        first.display()
                    ),
                });
            }
        }
        Ok(all)
    }
}

/// Everything that a file or a folder says.
pub fn read_path(path: &Path) -> anyhow::Result<Batch> {
    let read = || match std::fs::metadata(path)?.is_dir() {
        true => Folder::read_once(path),
        false => Folder::read_file_once(path),
    };
    read().map_err(|error: io::Error| {
        let path = path.display();
        anyhow!("cannot read {path}: {error}: name a file or a folder of manifests")
    })
}

fn read_standard_input() -> anyhow::Result<Batch> {
    let mut text = String::new();
    let read = io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    read.context(STANDARD_INPUT)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        bail!("{STANDARD_INPUT} has more than {MAX_FILE_BYTES} bytes: check it in parts");
    }
    if text.trim().is_empty() {
        bail!("{STANDARD_INPUT} is empty: look at what the command before the | has printed");
    }
    Ok(Folder::read_text_once(Path::new(STANDARD_INPUT), &text))
}

async fn read_cluster(flags: &Flags) -> anyhow::Result<Batch> {
    let client = cluster::reach(&flags.cluster).await?;
    let mut source = Kubernetes::watch(
        client,
        &flags.provider_options(),
        Box::new(ReferenceIndex::new(flags.options(Default::default()))),
    );
    let batch = tokio::time::timeout(TIMEOUT, source.next()).await;
    batch.with_context(|| {
        format!("the API server did not list all objects within {} s: see above", TIMEOUT.as_secs())
    })
}
