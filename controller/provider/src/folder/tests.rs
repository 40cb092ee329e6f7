use super::*;
use oxigress_objects::{Changed, World};

struct Fixture {
    folder: tempfile::TempDir,
    source: Folder,
    world: World,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Folder::open(folder.path()).unwrap();
        let mut fixture = Fixture { folder, source, world: World::default() };
        fixture.next().await;
        fixture
    }

    async fn next(&mut self) -> Vec<String> {
        let wait = tokio::time::timeout(Duration::from_secs(5), self.source.next());
        let batch = wait.await.expect("the source told nothing within 5 s");
        let mut changed = Changed::default();
        batch.seen.into_iter().for_each(|seen| self.world.apply(seen, &mut changed));
        batch.problems.iter().map(ToString::to_string).collect()
    }

    fn write(&self, name: &str, services: &[&str]) {
        let text: String = services
            .iter()
            .map(|name| format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n"))
            .collect();
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn services(&self) -> Vec<&str> {
        self.world.services.keys().map(|key| key.name.as_str()).collect()
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.folder.path().join(from), self.folder.path().join(to)).unwrap();
    }
}

#[tokio::test]
async fn files_are_read_when_they_are_closed_and_gone_when_removed() {
    let mut f = Fixture::new().await;
    f.write("a.yaml", &["a", "b"]);
    assert!(f.next().await.is_empty());
    assert_eq!(f.services(), ["a", "b"]);
    f.write("a.yaml", &["b"]);
    f.next().await;
    assert_eq!(f.services(), ["b"]);
    fs::remove_file(f.folder.path().join("a.yaml")).unwrap();
    f.next().await;
    assert!(f.services().is_empty());
}

#[tokio::test]
async fn new_folders_are_watched_too_and_hidden_files_are_not() {
    let mut f = Fixture::new().await;
    fs::create_dir_all(f.folder.path().join("x/y")).unwrap();
    f.write(".hidden.yaml", &["hidden"]);
    f.write("notes.txt", &["text"]);
    f.write("x/y/a.yml", &["a"]);
    f.next().await;
    assert_eq!(f.services(), ["a"]);
    f.write("x/y/a.yml", &["b"]);
    f.next().await;
    assert_eq!(f.services(), ["b"]);
    f.rename("x", ".x");
    f.next().await;
    assert!(f.services().is_empty());
}

#[tokio::test]
async fn an_editor_that_renames_over_never_makes_the_object_vanish() {
    let mut f = Fixture::new().await;
    f.write("a.yaml", &["a"]);
    f.next().await;
    f.rename("a.yaml", "a.yaml~");
    f.write("a.yaml", &["a", "b"]);
    f.next().await;
    assert_eq!(f.services(), ["a", "b"]);
    f.write(".a.yaml.swp", &["a", "c"]);
    f.rename(".a.yaml.swp", "a.yaml");
    f.next().await;
    assert_eq!(f.services(), ["a", "c"]);
}

#[tokio::test]
async fn a_moved_file_is_no_duplicate_of_itself() {
    let mut f = Fixture::new().await;
    f.write("a.yaml", &["a"]);
    f.next().await;
    f.rename("a.yaml", "b.yaml");
    f.write("c.yaml", &["c"]);
    assert!(f.next().await.is_empty());
    tokio::time::sleep(2 * LEAVING).await;
    f.write("d.yaml", &["d"]);
    while f.services() != ["a", "c", "d"] {
        assert!(f.next().await.is_empty());
    }
}

#[tokio::test]
async fn a_broken_file_keeps_its_last_good_objects() {
    let mut f = Fixture::new().await;
    f.write("a.yaml", &["a", "b"]);
    f.next().await;
    fs::write(f.folder.path().join("a.yaml"), "kind: [\n").unwrap();
    let problems = f.next().await;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("a.yaml document 1 (line 1): is not YAML"), "{problems:?}");
    assert_eq!(f.services(), ["a", "b"]);
    f.write("a.yaml", &["a", "b"]);
    let batch = f.source.next().await;
    assert!(batch.mended[0].ends_with("a.yaml: readable again"), "{:?}", batch.mended);
}

#[tokio::test]
async fn a_file_that_is_broken_from_the_start_is_told_as_unknown() {
    let mut f = Fixture::new().await;
    fs::write(f.folder.path().join("a.yaml"), "kind: [\n").unwrap();
    let batch = f.source.next().await;
    assert!(batch.is_incomplete);
    assert!(batch.problems[0].message.contains("it is not served until it is corrected"));
    f.write("a.yaml", &["a"]);
    assert!(!f.source.next().await.is_incomplete);
}

#[tokio::test]
async fn one_object_in_two_files_is_told_once_and_the_first_file_is_served() {
    let mut f = Fixture::new().await;
    f.write("b.yaml", &["a"]);
    f.next().await;
    f.write("a.yaml", &["a"]);
    let problems = f.next().await;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("b.yaml") && problems[0].contains("a.yaml"), "{problems:?}");
    fs::remove_file(f.folder.path().join("a.yaml")).unwrap();
    f.write("c.yaml", &["c"]);
    assert!(f.next().await.is_empty());
    assert_eq!(f.services(), ["a", "c"]);
}

#[tokio::test]
async fn a_config_map_mount_is_read_again_when_its_link_swaps() {
    let mut f = Fixture::new().await;
    let root = f.folder.path().to_owned();
    for (version, name) in [("..1", "a"), ("..2", "b")] {
        fs::create_dir(root.join(version)).unwrap();
        f.write(&format!("{version}/m.yaml"), &[name]);
    }
    std::os::unix::fs::symlink("..1", root.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/m.yaml", root.join("m.yaml")).unwrap();
    f.next().await;
    assert_eq!(f.services(), ["a"]);
    std::os::unix::fs::symlink("..2", root.join("..data_tmp")).unwrap();
    f.rename("..data_tmp", "..data");
    f.next().await;
    assert_eq!(f.services(), ["b"]);
}

#[tokio::test]
async fn a_folder_that_vanishes_keeps_what_it_said() {
    let mut f = Fixture::new().await;
    f.write("a.yaml", &["a"]);
    f.next().await;
    let root = f.folder.path().to_owned();
    let aside = root.with_extension("aside");
    fs::rename(&root, &aside).unwrap();
    assert_eq!(f.next().await.len(), 1);
    assert_eq!(f.services(), ["a"]);
    fs::rename(&aside, &root).unwrap();
    f.write("a.yaml", &["b"]);
    f.next().await;
    assert_eq!(f.services(), ["b"]);
}

/// What the batches say until the services are these. Pauses pass at once, so comparisons come in no time.
async fn problems_until(f: &mut Fixture, services: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    while f.services() != services {
        problems.extend(f.next().await);
    }
    problems
}

fn link(to: &str, at: &Path) {
    std::os::unix::fs::symlink(to, at).unwrap();
}

#[tokio::test]
async fn a_link_that_leads_back_comes_and_goes_and_the_folder_stays_watched() {
    let mut f = Fixture::new().await;
    let root = f.folder.path().to_owned();
    fs::create_dir(root.join("sub")).unwrap();
    for (n, to) in [".", "sub", "sub/../sub"].into_iter().enumerate() {
        for name in ["sub/a.yaml", "b.yaml"] {
            link(to, &root.join("loop"));
            f.write(name, &[&format!("linked-{n}")]);
            while !f.services().contains(&&*format!("linked-{n}")) {
                assert_eq!(f.next().await, [""; 0]);
            }
            fs::remove_file(root.join("loop")).unwrap();
            f.write(name, &[&format!("removed-{n}")]);
            while !f.services().contains(&&*format!("removed-{n}")) {
                assert_eq!(f.next().await, [""; 0]);
            }
            fs::remove_file(root.join(name)).unwrap();
            while !f.services().is_empty() {
                assert_eq!(f.next().await, [""; 0]);
            }
        }
    }
}

#[tokio::test]
async fn a_folder_keeps_its_files_when_one_of_its_names_goes() {
    let mut f = Fixture::new().await;
    let root = f.folder.path().to_owned();
    let outside = tempfile::tempdir().unwrap();
    fs::write(
        outside.path().join("a.yaml"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
    )
    .unwrap();
    link(outside.path().to_str().unwrap(), &root.join("one"));
    link(outside.path().to_str().unwrap(), &root.join("two"));
    problems_until(&mut f, &["a"]).await;
    fs::remove_file(root.join("one")).unwrap();
    f.write("b.yaml", &["b"]);
    while f.services() != ["a", "b"] {
        f.next().await;
        assert!(f.services().contains(&"a"), "it has another name");
    }
}

#[tokio::test]
async fn a_link_to_what_holds_the_folder_or_to_the_kernel_s_own_files_is_not_followed() {
    let mut f = Fixture::new().await;
    let above = f.folder.path().parent().unwrap().to_owned();
    for (name, to) in [("root", "/"), ("above", above.to_str().unwrap()), ("proc", "/proc/self")] {
        link(to, &f.folder.path().join(name));
        f.write(&format!("{name}.yaml"), &[name]);
        while !f.services().contains(&name) {
            assert_eq!(f.next().await, [""; 0], "{name}");
        }
    }
    assert_eq!(f.services(), ["above", "proc", "root"]);
}

#[tokio::test(start_paused = true)]
async fn a_link_to_a_release_that_is_swapped_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let current = folder.path().join("current");
    for release in ["1", "2"] {
        fs::create_dir(folder.path().join(release)).unwrap();
        let text = format!("apiVersion: v1\nkind: Service\nmetadata: {{name: of-{release}}}\n");
        fs::write(folder.path().join(release).join("a.yaml"), text).unwrap();
    }
    link("1", &current);
    let source = Folder::open(&current).unwrap();
    let mut f = Fixture { folder, source, world: World::default() };
    f.next().await;
    assert_eq!(f.services(), ["of-1"]);
    for release in ["2", "1", "2"] {
        link(release, &f.folder.path().join("new"));
        f.rename("new", "current");
        problems_until(&mut f, &[&format!("of-{release}")]).await;
    }
    f.write("2/a.yaml", &["changed"]);
    assert_eq!(problems_until(&mut f, &["changed"]).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_is_reported_and_repaired() {
    let mut f = Fixture::new().await;
    let outside = tempfile::tempdir().unwrap();
    let deep = outside.path().join("x/sub");
    fs::create_dir_all(&deep).unwrap();
    link(deep.to_str().unwrap(), &f.folder.path().join("sub"));
    f.write("sub/a.yaml", &["a"]);
    problems_until(&mut f, &["a"]).await;
    // Nothing that is watched notices that another folder is there now.
    fs::rename(outside.path().join("x"), outside.path().join("y")).unwrap();
    fs::create_dir_all(&deep).unwrap();
    f.write("sub/a.yaml", &["b"]);
    let problems = problems_until(&mut f, &["b"]).await;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("/sub: the file watch was lost"), "{problems:?}");
    f.write("sub/a.yaml", &["c"]);
    assert_eq!(problems_until(&mut f, &["c"]).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_folder_above_that_is_made_anew_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("x/manifests");
    fs::create_dir_all(&root).unwrap();
    let source = Folder::open(&root).unwrap();
    let mut f = Fixture { folder, source, world: World::default() };
    f.next().await;
    f.rename("x", "y");
    fs::create_dir_all(&root).unwrap();
    f.write("x/manifests/a.yaml", &["a"]);
    problems_until(&mut f, &["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn without_events_changes_are_found_by_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let source = Folder::open_with(folder.path(), Watch::none()).unwrap();
    let mut f = Fixture { folder, source, world: World::default() };
    f.next().await;
    f.write("a.yaml", &["a"]);
    problems_until(&mut f, &["a"]).await;
    f.write("a.yaml", &["a", "b"]);
    problems_until(&mut f, &["a", "b"]).await;
    fs::remove_file(f.folder.path().join("a.yaml")).unwrap();
    problems_until(&mut f, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_stays_and_is_reported_once() {
    let mut f = Fixture::new().await;
    let root = f.folder.path().to_owned();
    f.write("a.yaml", &["a"]);
    problems_until(&mut f, &["a"]).await;
    f.rename("a.yaml", "aside");
    link("a.yaml", &root.join("a.yaml"));
    let problems = f.next().await;
    assert!(problems.len() == 1 && problems[0].contains("last good version stays"), "{problems:?}");
    assert_eq!(f.services(), ["a"]);
    let again = tokio::time::timeout(4 * COMPARE, f.source.next()).await;
    assert!(again.is_err(), "{again:?}");
    f.rename("aside", "a.yaml");
    let batch = f.source.next().await;
    assert!(batch.mended[0].ends_with("a.yaml: readable again"), "{batch:?}");
}

#[tokio::test(start_paused = true)]
async fn a_folder_whose_permission_goes_and_comes_back_keeps_its_files() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::unix::fs::PermissionsExt;
    // Of this thread alone: root, too, has to ask for permission.
    let mut sets = capabilities(None).unwrap();
    sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, sets).unwrap();
    let mut f = Fixture::new().await;
    let sub = f.folder.path().join("sub");
    fs::create_dir(&sub).unwrap();
    f.write("sub/a.yaml", &["a"]);
    problems_until(&mut f, &["a"]).await;
    let allow = |mode| fs::set_permissions(&sub, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o300, 0o000] {
        allow(mode);
        let problems = f.next().await;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("/sub") && problems[0].contains("denied"), "{problems:?}");
        f.write("b.yaml", &["b"]);
        problems_until(&mut f, &["a", "b"]).await;
        allow(0o700);
        let batch = f.source.next().await;
        assert!(batch.mended[0].contains("/sub"), "{batch:?}");
        f.write("sub/a.yaml", &["a", "c"]);
        problems_until(&mut f, &["a", "b", "c"]).await;
        f.write("sub/a.yaml", &["a"]);
        fs::remove_file(f.folder.path().join("b.yaml")).unwrap();
        problems_until(&mut f, &["a"]).await;
    }
}
