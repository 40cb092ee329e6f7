//! Which file says what, and who wins when two say the same.
//!
//! Of two files with one object the first by path is served, whichever came first: a restart decides
//! alike. A file that is leaving steps back behind one that stays, so a moved file is no duplicate.

use crate::{Problem, ProblemKind, ProblemPlace, until_mended};
use oxigress_objects::document::{Document, Found};
use oxigress_objects::small::{SmallSet, SortedMap, compact};
use oxigress_objects::{Object, ObjectRef, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// All files and their objects.
#[derive(Default)]
pub struct Files {
    files: BTreeMap<Arc<Path>, File>,
    owners: BTreeMap<ObjectRef, SmallSet<Arc<Path>>>,
    /// Files of which a part cannot be read and never could be.
    unknown: BTreeSet<Arc<Path>>,
    touched: BTreeSet<ObjectRef>,
    /// Problems as reported last, by file.
    reported: BTreeMap<Arc<Path>, BTreeSet<Problem>>,
    /// Files whose problems have to be reported again if they changed.
    retell: BTreeSet<Arc<Path>>,
    mended: Vec<String>,
}

#[derive(Default)]
struct File {
    objects: SortedMap<ObjectRef, (At, Object)>,
    problems: BTreeSet<Problem>,
    is_leaving: bool,
    /// A part of it cannot be read now.
    is_broken: bool,
}

/// Number and line of a document.
type At = (usize, usize);

/// A file that is read again: what it says now, beside what it said before.
struct Reading<'a> {
    path: &'a Path,
    old: &'a File,
    /// The version before could not be read either.
    was_unknown: bool,
    new: File,
    objects: BTreeMap<ObjectRef, (At, Object)>,
    /// Objects that cannot be read now: their old form stays.
    kept: BTreeSet<ObjectRef>,
    /// A document cannot be read, so that any old object may be meant.
    keeps_all: bool,
    /// Something cannot be read and never could be.
    is_unknown: bool,
}

impl<'a> Reading<'a> {
    fn new(path: &'a Path, old: &'a File, was_unknown: bool) -> Self {
        let (new, objects, kept) = (File::default(), BTreeMap::new(), BTreeSet::new());
        Self { path, old, was_unknown, new, objects, kept, keeps_all: false, is_unknown: false }
    }

    fn document(&mut self, document: Document) {
        let at = (document.number, document.line);
        match document.found {
            Ok(found) => found.into_iter().for_each(|found| self.found(at, found)),
            Err(message) => {
                (self.keeps_all, self.new.is_broken) = (true, true);
                let is_known = !self.old.objects.is_empty() && !self.was_unknown;
                self.is_unknown |= !is_known;
                let message = format!("{message}; {}", until_mended(is_known));
                self.problem(at, ProblemKind::Unusable, message);
            }
        }
    }

    fn found(&mut self, at: At, found: Found) {
        let (kind, message) = match found {
            Found::Object(id, object) => match self.objects.get(&id) {
                None => {
                    self.objects.insert(id, (at, object));
                    return;
                }
                Some(((number, line), _)) => {
                    let message = format!(
                        "{id} is defined twice; document {number} (line {line}) is served, this one is ignored: remove one"
                    );
                    (ProblemKind::Unusable, message)
                }
            },
            Found::Broken(id, message) => {
                let is_known = self.old.objects.contains_key(&id);
                self.is_unknown |= !is_known;
                self.new.is_broken = true;
                self.kept.insert(id);
                (ProblemKind::Unusable, format!("{message}; {}", until_mended(is_known)))
            }
            Found::Unusable(message) => (ProblemKind::Unusable, message),
            Found::OtherKind(kind, message) => (ProblemKind::OtherKind(kind), message),
            Found::UnknownField(id, message) => (ProblemKind::UnknownField(id), message),
        };
        self.problem(at, kind, message);
    }

    fn problem(&mut self, at: At, kind: ProblemKind, message: String) {
        let place = ProblemPlace::File { path: self.path.to_path_buf(), document: Some(at) };
        self.new.problems.insert(Problem { place, message, kind });
    }
}

impl Files {
    /// Every file that is known.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.files.keys()
    }

    /// Gives back the memory that many first files have left half used.
    pub fn compact(&mut self) {
        compact(&mut self.files);
        compact(&mut self.owners);
    }

    /// Takes over what a file says now.
    pub fn update(&mut self, path: &Arc<Path>, documents: Vec<Document>) {
        let old = self.files.remove(path).unwrap_or_default();
        let was_unknown = self.unknown.remove(path);
        let mut reading = Reading::new(path, &old, was_unknown);
        for document in documents {
            reading.document(document);
        }
        let Reading { mut new, mut objects, kept, keeps_all, is_unknown, .. } = reading;
        if old.is_broken && !new.is_broken {
            self.mended.push(format!("{}: readable again", path.display()));
        }
        self.touched.extend(old.objects.keys().chain(objects.keys()).cloned());
        for (id, object) in old.objects {
            // A document that is no YAML may have been any of the old objects.
            if (keeps_all || kept.contains(&id)) && !objects.contains_key(&id) {
                objects.insert(id, object);
            } else if !objects.contains_key(&id) {
                self.disown(&id, path);
            }
        }
        for id in objects.keys() {
            self.owners.entry(id.clone()).or_default().insert(path.clone());
        }
        new.objects = objects.into();
        if is_unknown {
            self.unknown.insert(path.clone());
        }
        self.files.insert(path.clone(), new);
        self.retell.insert(path.clone());
    }

    /// A file holds something that cannot be read and never could be.
    pub fn is_incomplete(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// Some version of the file was read.
    pub fn knows(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// The file was taken away, perhaps to be replaced at once. False if it was not known.
    pub fn leave(&mut self, path: &Path) -> bool {
        self.set_leaving(path, true)
    }

    /// The file is back as it was.
    pub fn stay(&mut self, path: &Path) {
        self.set_leaving(path, false);
    }

    fn set_leaving(&mut self, path: &Path, is_leaving: bool) -> bool {
        let Some(file) = self.files.get_mut(path) else { return false };
        if file.is_leaving != is_leaving {
            file.is_leaving = is_leaving;
            // Of an object that nobody else has, nothing changes yet.
            let is_shared = |id: &&ObjectRef| self.owners.get(id).is_some_and(|o| o.len() > 1);
            self.touched.extend(file.objects.keys().filter(is_shared).cloned());
        }
        true
    }

    /// Forgets a file that is gone, with its objects.
    pub fn remove(&mut self, path: &Path) {
        let file = self.files.remove(path).unwrap_or_default();
        self.unknown.remove(path);
        if file.is_broken {
            self.mended.push(format!(
                "{}: the file was removed; it could not be read before",
                path.display()
            ));
        }
        for (id, _) in file.objects {
            self.disown(&id, path);
            self.touched.insert(id);
        }
        self.retell.insert(path.into());
    }

    fn disown(&mut self, id: &ObjectRef, path: &Path) {
        if let Some(owners) = self.owners.get_mut(id) {
            owners.remove(path);
            if owners.is_empty() {
                self.owners.remove(id);
            }
        }
    }

    /// The objects whose file changed, as they are served now.
    pub fn take_seen(&mut self) -> Vec<Seen> {
        let touched = std::mem::take(&mut self.touched);
        for owners in touched.iter().filter_map(|id| self.owners.get(id)) {
            self.retell.extend(owners.iter().cloned());
        }
        touched.into_iter().map(|id| (id.clone(), self.served(&id).cloned())).collect()
    }

    fn winner(&self, id: &ObjectRef) -> Option<&Path> {
        let owners = self.owners.get(id)?;
        let stays = |path: &&Arc<Path>| self.files.get(*path).is_some_and(|file| !file.is_leaving);
        owners.iter().find(stays).or_else(|| owners.first()).map(AsRef::as_ref)
    }

    fn served(&self, id: &ObjectRef) -> Option<&Object> {
        let file = self.files.get(self.winner(id)?)?;
        file.objects.get(id).map(|(_, object)| object)
    }

    /// Problems that were not reported yet; to be asked after [`Self::take_seen`].
    pub fn take_problems(&mut self) -> Vec<Problem> {
        let mut new = Vec::new();
        for path in std::mem::take(&mut self.retell) {
            let now = self.problems_of(&path);
            let before = self.reported.remove(&path).unwrap_or_default();
            new.extend(now.difference(&before).cloned());
            if !now.is_empty() {
                self.reported.insert(path, now);
            }
        }
        new
    }

    /// What was broken and is no longer.
    pub fn take_mended(&mut self) -> Vec<String> {
        std::mem::take(&mut self.mended)
    }

    fn problems_of(&self, path: &Path) -> BTreeSet<Problem> {
        let Some(file) = self.files.get(path) else { return BTreeSet::new() };
        let mut problems = file.problems.clone();
        if file.is_leaving {
            return problems;
        }
        for (id, (place, _)) in file.objects.iter() {
            if let Some(winner) = self.winner(id).filter(|winner| *winner != path) {
                problems.insert(Problem {
                    place: ProblemPlace::File { path: path.into(), document: Some(*place) },
                    kind: ProblemKind::Unusable,
                    message: format!(
                        "{id} is defined twice; {} is served, this one is ignored: remove one",
                        winner.display()
                    ),
                });
            }
        }
        problems
    }
}
