//! A kind that exists in unit tests only. It proves the recipe for a new kind: this file, its `mod` line, and its line in the
//! list of [`super::table`] are all that names it.

use super::definition::{Checks, Fault};
use super::table::{Kind, Operations, Record, RecordRef, TABLES};
use super::tests::{NoChecks, everything};
use crate::model::Snapshot;
use crate::record::{check, delta_records};
use crate::wire::native::Patch;

pub enum Specimens {}

impl Record for Specimens {
    type Key = String;
    type Value = u32;

    fn encode(_: &String, value: &u32) -> Option<Vec<u8>> {
        Some(value.to_le_bytes().into())
    }

    fn validate(_: &[u8], value: &[u8], _: &dyn Checks) -> Result<(), Fault> {
        match value {
            [0, 0, 0, 0] => Err(Fault::new("", "a specimen is not zero")),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_new_kind_is_decoded_compared_applied_checked_encoded_and_withheld() {
    let json =
        br#"{"version": 1, "upsert": {"specimens": {"p": 7}}, "remove": {"specimens": ["q"]}}"#;
    let (patch, ignored) = crate::wire::decode::<Patch>(json).unwrap();
    assert_eq!((patch.count(), ignored), ((1, 1), 0));
    let faults = crate::wire::faults(br#"{"upsert": {"specimens": {"p": -1}}}"#, "upsert", 1);
    assert_eq!(faults[0].pointer, "/upsert/specimens/p");

    let old = Snapshot::default();
    let mut new = old.clone();
    patch.clone().apply(&mut new);
    assert_eq!(new.specimens, [("p".to_owned(), 7)].into());
    assert_eq!(Patch::between(&old, &new).upsert, patch.upsert);

    let changes = delta_records(&patch, |_, _| None);
    let expected = [(b"p".to_vec(), Some(vec![7, 0, 0, 0])), (b"q".to_vec(), None)];
    let found = changes.into_iter().map(|change| (change.key, change.value));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert!(check(Kind::Specimen, b"p", &[7, 0, 0, 0], &NoChecks).is_ok());
    assert!(check(Kind::Specimen, b"p", &[0; 4], &NoChecks).is_err());

    let record = RecordRef::at("/upsert/specimens/p", "upsert").unwrap();
    assert_eq!((record.to_string().as_str(), Kind::Specimen.label()), ("specimens p", "specimens"));
    let mut withheld = patch.clone();
    assert!((Operations::of_kind(Kind::Specimen).unwrap().withhold)(&mut withheld, "p"));
    assert!(withheld.upsert.specimens.is_empty() && withheld.remove.specimens.contains("p"));
    assert!(everything().specimens.contains_key("p") && TABLES.len() + 2 == Kind::ALL.len());
}

/// Reads every source file of both programs, so that a list of kinds that somebody writes by hand is found.
#[test]
fn only_its_file_its_mod_line_and_its_line_in_the_list_name_a_kind() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("module"), root.join("controller")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_source = path.extension().is_some_and(|end| end == "rs");
            if path.is_dir() {
                folders.push(path);
            } else if is_source && std::fs::read_to_string(&path).unwrap().contains("specimen") {
                found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.retain(|name| name != "tests.rs");
    found.sort();
    assert_eq!(found, ["record.rs", "specimen.rs", "table.rs"]);
}
