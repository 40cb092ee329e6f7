//! Lists a folder and what is below it, and watches each folder on the way.

use super::watch::{self, Watch};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Deepest nesting of folders, so that a loop of links ends.
const MAX_DEPTH: usize = 32;

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
}

impl Walk {
    /// Lists a folder; fails if that one cannot be listed.
    pub fn enter(&mut self, folder: &Path, depth: usize, watch: &mut Watch) -> io::Result<()> {
        let at = fs::canonicalize(folder)?;
        let root = self.root.get_or_insert_with(|| at.clone());
        if is_too_much(&at, root) || depth > MAX_DEPTH || !self.visited.insert(at) {
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

/// Whether a link leads to what holds the folder itself, such as `/`, or to what the kernel makes up: listing the whole machine takes
/// half a minute, in which nobody's change is seen.
fn is_too_much(at: &Path, root: &Path) -> bool {
    let is_above = at != root && root.starts_with(at);
    is_above
        || ["/proc", "/sys", "/dev"].iter().any(|of| at.starts_with(of) && !root.starts_with(of))
}

fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}
