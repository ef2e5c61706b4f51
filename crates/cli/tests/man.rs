//! The manual pages in docs/man say what the help texts say.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn pages_in(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man")
}

#[test]
fn the_pages_are_up_to_date() {
    let made = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_crosslane"))
        .arg("man")
        .arg(made.path())
        .status()
        .unwrap();
    assert!(status.success());
    let (made, kept) = (pages_in(made.path()), pages_in(&committed()));
    let names = |pages: &BTreeMap<String, String>| pages.keys().cloned().collect::<Vec<_>>();
    let remedy = "run `cargo run -p crosslane -- man docs/man` and commit the result";
    assert_eq!(names(&made), names(&kept), "{remedy}");
    for (name, page) in &made {
        assert!(
            page == &kept[name],
            "docs/man/{name} is out of date: {remedy}"
        );
    }
}

#[test]
fn groff_finds_nothing_wrong_with_them() {
    for name in pages_in(&committed()).keys() {
        let page = committed().join(name);
        let Ok(output) = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(page)
            .output()
        else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: groff is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty(), "{name}: {said}");
    }
}
