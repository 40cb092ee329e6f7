//! Where objects come from: a folder of manifests, or a Kubernetes API server; and what DNS says of their names.
//!
//! Shape:     a [`Source`] lists and watches and makes batches; all end in the same [`oxigress_objects::World`].
//! Knows:     objects, files, the API server, name servers.
//! Does not:  know what objects are translated to. Its [`References`](oxigress_objects::References) say which Secrets and
//!            ConfigMaps stay.
#![forbid(unsafe_code)]

pub mod dns;
pub mod folder;
pub mod kubernetes;

use oxigress_core::text::line::Escaped;
use oxigress_objects::published::{ObjectStatus, Published};
use oxigress_objects::{Key, ObjectRef, Seen};
use std::fmt;
use std::path::PathBuf;

/// Something that tells what objects there are, first all, then each change.
pub trait Source {
    /// What happened since the last call; waits until something did. The first answer is everything
    /// there is.
    fn next(&mut self) -> impl Future<Output = Batch> + Send;
}

/// What a source saw at once.
#[derive(Debug, Default)]
pub struct Batch {
    /// Objects that are new, changed or gone.
    pub seen: Vec<Seen>,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// Something cannot be read and never could be: what it would say is unknown.
    pub is_incomplete: bool,
    /// What could not be read before and is no problem any more.
    pub mended: Vec<String>,
    /// The API server does not let us see IngressClasses.
    pub hides_classes: bool,
    /// Ingresses of an API server as they stand there, or that they are gone; a folder has none.
    pub published: Vec<(Key, Option<Published>)>,
    /// The status of objects of the Gateway API as it stands, or that they are gone; a folder has none.
    pub statuses: Vec<(ObjectRef, Option<ObjectStatus>)>,
}

/// Something that is not served, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The place of the problem.
    pub place: ProblemPlace,
    /// What is wrong, and the remedy.
    pub message: String,
    /// How much of it is served.
    pub kind: ProblemKind,
}

/// How much is served of what a problem is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// Nothing of the document is read.
    Unusable,
    /// Nothing, and nothing is wrong with it: it is of this kind, which is not read.
    OtherKind(String),
    /// The object, without a field that its type does not have.
    UnknownField(ObjectRef),
}

/// The place of a problem: a file, or an object of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemPlace {
    /// A file, or a document in it.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The document in it, counted from 1, and the line where it begins; none: the whole file.
        document: Option<(usize, usize)>,
    },
    /// In an object of an API server.
    Object(ObjectRef),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, oxigress_core::text::line::one_line(&self.message))
    }
}

impl fmt::Display for ProblemPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProblemPlace::File { path, document } => {
                write!(f, "{}", Escaped(path.display()))?;
                match document {
                    Some((number, line)) => write!(f, " document {number} (line {line})"),
                    None => Ok(()),
                }
            }
            ProblemPlace::Object(object) => write!(f, "{}", Escaped(object)),
        }
    }
}

/// What is served of something that cannot be read.
fn until_mended(is_known: bool) -> &'static str {
    match is_known {
        true => "until then its last good version stays",
        false => "it is not served until it is corrected",
    }
}
