//! Lists a folder and what is below it, and watches each folder on the way.

use super::watch::{self, Watch};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Deepest nesting of folders, so that a loop of links ends.
const MAX_DEPTH: usize = 32;
/// Most files and folders that are looked at where links lead out of the folder: one to `/` would take minutes for each look.
const MAX_OUTSIDE: usize = 10_000;

/// The files and folders that a walk has found.
#[derive(Default)]
pub struct Walk {
    /// Manifests, each by one name: a folder that links lead to is listed once, by its own name if it is below too.
    pub files: BTreeSet<PathBuf>,
    /// The folders that were listed.
    pub folders: BTreeSet<PathBuf>,
    /// Files and folders that are there and cannot be looked at.
    pub refused: Vec<(PathBuf, io::Error)>,
    /// Folders that were not watched before under that name.
    pub watched_anew: Vec<PathBuf>,
    visited: BTreeSet<PathBuf>,
    /// The folder that was entered first, without links.
    root: Option<PathBuf>,
    /// How much was looked at that is not below it.
    outside: usize,
}

impl Walk {
    /// Lists a folder; fails if that one cannot be listed.
    pub fn enter(&mut self, folder: &Path, depth: usize, watch: &mut Watch) -> io::Result<()> {
        let at = fs::canonicalize(folder)?;
        let is_outside = !at.starts_with(self.root.get_or_insert_with(|| at.clone()));
        if is_outside && self.outside > MAX_OUTSIDE || depth > MAX_DEPTH || !self.visited.insert(at)
        {
            return Ok(());
        }
        // Watch first, list second: a file created in between is then seen twice, not missed.
        if watch.add(folder)? {
            self.watched_anew.push(folder.into());
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            entries.push((is_link, entry.file_name()));
        }
        self.folders.insert(folder.into());
        entries.sort();
        for (_, name) in entries.iter().filter(|(_, name)| !watch::is_hidden(name)) {
            self.outside += usize::from(is_outside);
            if is_outside && self.outside > MAX_OUTSIDE {
                return Err(io::Error::other(format!(
                    "links that lead out of the served folder lead to more than {MAX_OUTSIDE} files and folders, the rest is \
                     not read: remove the link"
                )));
            }
            self.look_at(folder.join(name), depth, watch);
        }
        Ok(())
    }

    fn look_at(&mut self, path: PathBuf, depth: usize, watch: &mut Watch) {
        let looked = fs::metadata(&path).and_then(|meta| {
            if meta.is_dir() {
                self.enter(&path, depth + 1, watch)?;
            } else if meta.is_file() && watch::is_manifest(&path) {
                self.files.insert(path.clone());
            }
            Ok(())
        });
        match looked {
            // It was removed meanwhile, or a link leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A link that leads to itself, and to no manifest.
            Err(error) if is_loop(&error) && !watch::is_manifest(&path) => {}
            Err(error) => self.refused.push((path, error)),
            Ok(()) => {}
        }
    }
}

fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}
