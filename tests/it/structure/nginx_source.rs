//! Which nginx is built: what `nginx-build/advisories` says of a source tree, and that no image is made of one with known
//! security holes or on a base that may change.

use anyhow::{Context, Result, ensure};
use oxigress_tests::{dist, pass};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Concerns every build: memory corruption in HTTP/2, fixed in 1.30.7 and 1.31.9.
const ALWAYS: &str = "CVE-2026-123007";

#[test]
fn a_hole_is_open_until_the_version_of_its_branch_that_closes_it() {
    pass("advisories-versions", |directory| {
        for (version, open) in [
            ("1.9.4", false),
            ("1.26.3", true),
            ("1.28.3", true),
            ("1.30.6", true),
            ("1.30.7", false),
            ("1.30.10", false),
            ("1.31.0", true),
            ("1.31.8", true),
            ("1.31.9", false),
            ("1.32.0", false),
        ] {
            let holes = advisories(&tree(&directory.join(version), version, &[], &[], "")?)?;
            ensure!(holes.iter().any(|hole| hole == ALWAYS) == open, "nginx {version}: {holes:?}");
        }
        Ok(())
    });
}

#[test]
fn a_hole_of_what_is_neither_built_nor_used_is_none() {
    pass("advisories-needs", |directory| {
        let holes = advisories(&tree(&directory.join("old"), "1.26.3", &[], &[], "")?)?;
        // HTTP/3 and mail are not built; nginx.conf has no SSI, alias or rewrite.
        for absent in ["CVE-2026-95101", "CVE-2026-113425", "CVE-2026-97205", "CVE-2026-42945"] {
            ensure!(
                !holes.iter().any(|hole| hole == absent),
                "{absent} is no hole here: {holes:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn debian_patches_close_holes_when_they_are_applied() {
    pass("advisories-debian", |directory| {
        let patches = ["nginx-fix-pidfile.patch", "CVE-2026-123007.patch", "FIX-HTTP2bomb.patch"];
        let entry = "nginx (1.26.3-3+deb13u9) trixie-security; urgency=high\n\n  * limit header length (CVE-2026-118899)\n";
        let all = advisories(&tree(&directory.join("plain"), "1.26.3", &[], &[], "")?)?;
        let unapplied =
            advisories(&tree(&directory.join("unapplied"), "1.26.3", &patches, &[], entry)?)?;
        ensure!(all == unapplied, "patches that are not applied close nothing: {unapplied:?}");
        let half =
            advisories(&tree(&directory.join("half"), "1.26.3", &patches, &patches[..2], entry)?)?;
        ensure!(all == half, "a series that stopped half way closes nothing: {half:?}");

        let applied =
            advisories(&tree(&directory.join("applied"), "1.26.3", &patches, &patches, entry)?)?;
        let closed: Vec<_> = all.iter().filter(|hole| !applied.contains(hole)).collect();
        ensure!(
            closed == ["CVE-2026-118899", "CVE-2026-123007"],
            "one by the name of its patch, one by the changelog: {closed:?}"
        );
        Ok(())
    });
}

/// Debian is a stub here: which of its suites have a source package, and which of these a known hole.
#[test]
fn the_best_source_that_can_be_had_is_taken() {
    pass("nginx-source", |directory| {
        let root = directory.path();
        fs::create_dir_all(root.join("nginx-build"))?;
        copy("source", root)?;
        copy("step", root)?;
        let package = r#"case " $ABSENT " in *" $3 "*) exit 1 ;; esac
mkdir -p "$2/nginx-$3/src/core"
echo '#define NGINX_VERSION "1.26.3"' > "$2/nginx-$3/src/core/nginx.h"
echo "$3" > "$2/nginx-$3/suite"
echo "nginx 1.26.3-3+$3 1.26.3-3+$3""#;
        script(&root.join("nginx-build/source-debian"), package)?;
        let hole = r#"case " $HOLES " in *" $(cat "$1/suite") "*) exit 1 ;; esac"#;
        script(&root.join("nginx-build/advisories"), hole)?;
        for (absent, holes, taken) in [
            ("", "", Some("sid")),
            ("sid", "", Some("trixie")),
            ("", "sid", Some("trixie")),
            ("", "sid trixie", Some("sid")),
            ("sid", "trixie", Some("trixie")),
            ("trixie", "sid", Some("sid")),
            ("sid trixie", "", None),
        ] {
            let case = format!("absent: {absent:?}, with holes: {holes:?}");
            fs::remove_dir_all(root.join("target")).ok();
            let mut command = Command::new("nginx-build/source");
            command.current_dir(root).env_remove("OXIGRESS_TARGET");
            let output = command.env("ABSENT", absent).env("HOLES", holes).output()?;
            let origin = fs::read_to_string(root.join("target/nginx/SOURCE")).unwrap_or_default();
            match taken {
                Some(suite) => {
                    let expected = format!("nginx 1.26.3 from Debian {suite}'s source package");
                    ensure!(origin.starts_with(&expected), "{case}: {origin} {output:?}");
                }
                None => {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    ensure!(
                        output.status.code() == Some(1) && origin.is_empty(),
                        "{case}: {origin}"
                    );
                    ensure!(said.contains("NGINX_SOURCE_DIR=crate"), "no remedy: {said}");
                }
            }
        }
        Ok(())
    });
}

/// The README names the versions on which the suite ran; the table says what ran, and at which commit.
#[test]
fn the_versions_that_the_readme_names_are_those_of_the_table() -> Result<()> {
    let read = |name: &str| fs::read_to_string(dist::repository().join(name));
    let versions = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        let words = words.map(|word| word.trim_matches('.'));
        words.filter(|word| word.matches('.').count() == 2).map(str::to_owned).collect()
    };
    let readme = read("README.md")?;
    let (_, said) = readme.split_once("The whole suite ran on ").context("README.md")?;
    let (said, _) = said.split_once(". ").context("the end of the sentence")?;
    let page = read("docs/operate/image.md")?;
    let (_, table) = page.split_once("| nginx | what ran |").context("docs/operate/image.md")?;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let tested: Vec<_> = rows.filter_map(|row| versions(row).into_iter().next()).collect();
    let named = versions(said);
    ensure!(!named.is_empty() && named == tested, "README.md: {named:?}, the table: {tested:?}");
    Ok(())
}

#[test]
fn no_image_is_made_of_an_nginx_with_known_holes() {
    pass("image-holes", |directory| {
        let root = directory.path();
        fs::create_dir_all(root.join("target/dist"))?;
        fs::create_dir_all(root.join("nginx-build/image"))?;
        copy("image/files", root)?;
        // What would come next: reached means not refused.
        script(&root.join("nginx-build/require"), "exit 77")?;
        let made = |nginx: &str, force: &str| -> Result<Output> {
            fs::write(root.join("target/dist/NGINX"), nginx)?;
            let mut command = Command::new("nginx-build/image/files");
            Ok(command.current_dir(root).env("FORCE", force).output()?)
        };
        let holes =
            "nginx 1.26.3 from a test\npatch CVE-2026-1642.patch\nhole CVE-2026-123007 HTTP/2\n";
        for force in ["", "unpinned-base"] {
            let refused = made(holes, force)?;
            ensure!(refused.status.code() == Some(1), "{refused:?}");
            let message = String::from_utf8(refused.stderr)?;
            ensure!(
                message.contains("hole CVE-2026-123007 HTTP/2")
                    && message.contains("FORCE=known-holes"),
                "{message}"
            );
        }
        for (nginx, force) in [
            (holes, "known-holes"),
            (holes, "unpinned-base,known-holes"),
            ("nginx 1.30.7 from a test\n", ""),
        ] {
            let made = made(nginx, force)?;
            ensure!(made.status.code() == Some(77), "FORCE={force} on {nginx}: {made:?}");
        }
        Ok(())
    });
}

#[test]
fn no_image_is_made_on_a_base_that_may_change() {
    pass("image-base", |directory| {
        let root = directory.path();
        fs::create_dir_all(root.join("nginx-build/image"))?;
        fs::write(root.join("Cargo.toml"), "version = \"0\"\n")?;
        copy("image/build", root)?;
        script(&root.join("nginx-build/require"), "exit 77")?;
        // It wants root before all else; that is not what is asked here.
        fs::create_dir(root.join("bin"))?;
        script(&root.join("bin/id"), "echo 0")?;
        let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH")?);
        let digest = format!("debian@sha256:{}", "0".repeat(64));
        for (base, force, code) in [
            ("debian:12-slim", "", 1),
            ("debian:12-slim", "known-holes", 1),
            ("debian:12-slim", "unpinned-base", 77),
            (digest.as_str(), "", 77),
            ("", "", 77),
        ] {
            let mut command = Command::new("nginx-build/image/build");
            command.current_dir(root).env("PATH", &path).env("BASE", base).env("FORCE", force);
            let made = command.output()?;
            ensure!(made.status.code() == Some(code), "BASE={base} FORCE={force}: {made:?}");
            let message = String::from_utf8(made.stderr)?;
            ensure!((code == 77) != message.contains("has no digest"), "{message}");
        }
        Ok(())
    });
}

#[test]
fn a_user_collects_the_files_of_an_image_and_sudo_does_the_rest() {
    pass("image-sudo", |directory| {
        let root = directory.path();
        fs::create_dir_all(root.join("nginx-build/image"))?;
        fs::create_dir(root.join("bin"))?;
        fs::write(root.join("Cargo.toml"), "version = \"1.2.3\"\n")?;
        copy("image/build", root)?;
        script(&root.join("nginx-build/require"), "exit 0")?;
        script(&root.join("nginx-build/step"), "shift 2; \"$@\"")?;
        script(&root.join("nginx-build/image/files"), "echo files >> calls")?;
        script(&root.join("bin/id"), "echo 1000")?;
        script(&root.join("bin/sudo"), "echo sudo \"$@\" >> calls")?;
        let path = format!("{}:{}", root.join("bin").display(), std::env::var("PATH")?);
        let mut command = Command::new("nginx-build/image/build");
        command
            .current_dir(root)
            .env("PATH", &path)
            .env("REVISION", "r1")
            .env("SOURCE_DATE_EPOCH", "7");
        let made = command.env("FORCE", "known-holes").env_remove("BASE").output()?;
        ensure!(made.status.success(), "{made:?}");
        ensure!(
            fs::read_to_string(root.join("calls"))?
                == "files\nsudo env FILES_OWNER=1000:1000 REVISION=r1 SOURCE_DATE_EPOCH=7 BASE= \
                    FORCE=known-holes nginx-build/image/build oxigress:1.2.3\n",
            "{}",
            fs::read_to_string(root.join("calls"))?
        );
        Ok(())
    });
}

/// The names of the holes that `nginx-build/advisories` finds in a tree; its status says whether there are any.
fn advisories(tree: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(dist::repository().join("nginx-build/advisories"));
    let output = command.arg(tree).output()?;
    let names: Vec<String> = String::from_utf8(output.stdout.clone())?
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    ensure!(output.status.code() == Some(i32::from(!names.is_empty())), "{output:?}");
    Ok(names)
}

/// As much of a source tree as tells what it is; `applied` is the list that dpkg-source leaves.
fn tree(
    root: &Path,
    version: &str,
    series: &[&str],
    applied: &[&str],
    changelog: &str,
) -> Result<PathBuf> {
    for folder in ["src/core", "debian/patches", ".pc"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::write(
        root.join("src/core/nginx.h"),
        format!("#define nginx_version      1\n#define NGINX_VERSION      \"{version}\"\n"),
    )?;
    fs::write(root.join("debian/patches/series"), format!("# a comment\n{}\n", series.join("\n")))?;
    if !applied.is_empty() {
        fs::write(root.join(".pc/applied-patches"), format!("{}\n", applied.join("\n")))?;
    }
    fs::write(root.join("debian/changelog"), changelog)?;
    Ok(root.to_owned())
}

fn copy(name: &str, root: &Path) -> Result<()> {
    let place = Path::new("nginx-build").join(name);
    fs::copy(dist::repository().join(&place), root.join(&place)).context(name.to_owned())?;
    Ok(())
}

fn script(place: &Path, body: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(place, format!("#!/bin/sh\n{body}\n"))?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
