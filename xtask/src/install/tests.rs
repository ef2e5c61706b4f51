use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;

/// Folders of what has been built and of what is installed.
struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Self { folder };
        fs::create_dir(sandbox.built()).unwrap();
        sandbox.build("as built");
        sandbox
    }

    fn build(&self, text: &str) {
        for (_, from, _, _) in FILES.iter().filter(|(how, ..)| *how == How::Built) {
            fs::write(self.built().join(from), format!("{from} {text}")).unwrap();
        }
    }

    fn built(&self) -> PathBuf {
        self.folder.path().join("built")
    }

    fn place(&self) -> Place {
        Place {
            prefix: "/opt/crosslane".into(),
            destdir: Some(self.folder.path().join("dest")),
        }
    }

    fn below(&self) -> PathBuf {
        self.folder.path().join("dest/opt/crosslane")
    }

    fn install(&self) {
        let place = self.place();
        install(&self.built(), &place.folder(), &place.prefix, false).unwrap();
    }
}

/// Files below a folder, by their paths from there.
fn files_below(folder: &Path) -> Vec<String> {
    let entries = walkdir::WalkDir::new(folder).sort_by_file_name();
    entries
        .into_iter()
        .map(Result::unwrap)
        .filter(|entry| !entry.file_type().is_dir())
        .map(|entry| {
            let path = entry.path().strip_prefix(folder).unwrap();
            path.to_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn the_description_names_the_prefix_and_the_version() {
    let path = workspace_root().join("crates/api/crosslane.pc.in");
    let filled = filled(
        &fs::read_to_string(path).unwrap(),
        Path::new("/opt/crosslane"),
    );
    assert!(!filled.contains('@'), "{filled}");
    assert!(filled.starts_with("prefix=/opt/crosslane\n"), "{filled}");
    assert!(filled.contains(concat!("\nVersion: ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn the_service_runs_the_command_that_is_installed_with_it() {
    let sandbox = Sandbox::new();
    sandbox.install();
    let unit = sandbox.below().join("lib/systemd/system/crosslane.service");
    let text = fs::read_to_string(unit).unwrap();
    assert!(text.contains("\nExecStart=/opt/crosslane/bin/crosslane monitor\n"));
    assert!(!text.contains(DEFAULT_PREFIX), "{text}");
}

#[test]
fn all_that_the_help_lists_is_installed_and_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.install();
    let mut wanted: Vec<String> = FILES.map(|(_, _, to, _)| to.to_owned()).to_vec();
    let (pages, others): (Vec<_>, Vec<_>) = files_below(&sandbox.below())
        .into_iter()
        .partition(|path| path.starts_with(PAGES.1));
    wanted.sort_unstable();
    let mut found = others;
    found.sort_unstable();
    assert_eq!(found, wanted);
    assert!(pages.contains(&"share/man/man1/crosslane-run.1".to_owned()));
    for name in &wanted {
        assert!(listing().contains(&format!("  {name}\n")), "{name}");
    }
}

#[test]
fn the_library_for_c_has_the_name_by_which_programs_ask_for_it() {
    let sandbox = Sandbox::new();
    // As earlier versions had it.
    make_folder(&sandbox.below().join("lib")).unwrap();
    fs::write(sandbox.below().join("lib/libcrosslane_api.so"), "old").unwrap();
    sandbox.install();
    let build = workspace_root().join("crates/api/build.rs");
    let name = "libcrosslane_api.so.0";
    assert!(
        fs::read_to_string(build)
            .unwrap()
            .contains(&format!("\"{name}\""))
    );
    let link = sandbox.below().join("lib/libcrosslane_api.so");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new(name));
    assert_eq!(
        fs::read_to_string(&link).unwrap(),
        "libcrosslane_api.so as built"
    );
}

#[test]
fn everybody_may_read_and_run_it() {
    let sandbox = Sandbox::new();
    for file in fs::read_dir(sandbox.built()).unwrap() {
        fs::set_permissions(file.unwrap().path(), Permissions::from_mode(0o600)).unwrap();
    }
    sandbox.install();
    let mode = |path: &str| fs::metadata(sandbox.below().join(path)).unwrap().mode() & 0o777;
    assert_eq!(mode("bin"), 0o755);
    assert_eq!(mode("lib/crosslane"), 0o755);
    assert_eq!(mode("bin/crosslane"), 0o755);
    assert_eq!(mode("lib/crosslane/libcrosslane.so"), 0o644);
    assert_eq!(mode("share/man/man1/crosslane.1"), 0o644);
}

#[test]
fn uninstall_removes_what_install_put_there_and_nothing_else() {
    let sandbox = Sandbox::new();
    let others = ["bin/other", "lib/libother.so", "share/man/man1/other.1"];
    for other in others {
        let path = sandbox.below().join(other);
        make_folder(path.parent().unwrap()).unwrap();
        fs::write(path, "of somebody else").unwrap();
    }
    sandbox.install();
    let installed = files_below(&sandbox.below()).len() - others.len();
    // As if an install had been killed.
    fs::write(unfinished(&sandbox.below().join("bin/crosslane")), "half").unwrap();
    assert_eq!(uninstall(&sandbox.below()).unwrap(), installed);
    assert_eq!(files_below(&sandbox.below()), others);
    assert!(!sandbox.below().join(OWN_FOLDER).exists());
    assert_eq!(uninstall(&sandbox.below()).unwrap(), 0);
}

#[test]
fn a_folder_of_ours_with_something_of_somebody_else_stays() {
    let sandbox = Sandbox::new();
    sandbox.install();
    let other = sandbox.below().join(OWN_FOLDER).join("other.so");
    fs::write(&other, "of somebody else").unwrap();
    uninstall(&sandbox.below()).unwrap();
    assert!(other.exists());
}

#[test]
fn nothing_is_replaced_while_something_has_not_been_built() {
    let sandbox = Sandbox::new();
    sandbox.install();
    sandbox.build("anew");
    fs::remove_file(sandbox.built().join("libcrosslane_api.a")).unwrap();
    let place = sandbox.place();
    let refused = install(&sandbox.built(), &place.folder(), &place.prefix, false).unwrap_err();
    assert!(
        refused.to_string().contains("cargo build --release"),
        "{refused}"
    );
    let library = sandbox.below().join("lib/crosslane/libcrosslane.so");
    assert_eq!(
        fs::read_to_string(library).unwrap(),
        "libcrosslane.so as built"
    );
}

#[test]
fn who_has_a_file_open_keeps_it() {
    let sandbox = Sandbox::new();
    sandbox.install();
    let path = sandbox.below().join("lib/crosslane/libcrosslane.so");
    let mut old = fs::File::open(&path).unwrap();
    sandbox.build("anew");
    sandbox.install();
    let mut text = String::new();
    old.rewind().unwrap();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "libcrosslane.so as built");
    assert_eq!(fs::read_to_string(&path).unwrap(), "libcrosslane.so anew");
    let left = files_below(&sandbox.below());
    let is_unfinished = |path: &&String| path.contains(".crosslane-install");
    assert_eq!(left.iter().find(is_unfinished), None);
}

#[test]
fn there_is_a_whole_library_at_every_moment() {
    let sandbox = Sandbox::new();
    let text = "x".repeat(1 << 20);
    sandbox.build(&text);
    sandbox.install();
    let path = sandbox.below().join("lib/crosslane/libcrosslane.so");
    let whole = fs::metadata(&path).unwrap().len();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(
                    fs::read(&path).map(|found| found.len() as u64).ok(),
                    Some(whole)
                );
            }
        });
        let from = sandbox.built().join("libcrosslane.so");
        for _ in 0..50 {
            replace(&path, DATA, |new| copied(&from, new)).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        looks.join().unwrap();
    });
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("lib/file");
    let failed = replace(&to, DATA, |new| {
        fs::write(new, "half")?;
        anyhow::bail!("no space")
    });
    assert_eq!(failed.unwrap_err().to_string(), "no space");
    assert!(files_below(folder.path()).is_empty());
}

#[test]
fn line_tables_are_left_out_and_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::env::current_exe().unwrap();
    let short = folder.path().join("short");
    replace(&short, PROGRAM, |new| stripped(&whole, new)).unwrap();
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(length(&short) < length(&whole));
    let output = Command::new(&short).arg("--list").output().unwrap();
    assert!(output.status.success());
}

#[test]
fn make_hands_on_where_to_install() {
    for task in ["install", "uninstall"] {
        let mut make = Command::new("make");
        make.args(["--dry-run", task, "PREFIX=/opt/a b", "DESTDIR=/tmp/c d"]);
        make.args(["CARGO_TARGET_DIR=/t"]);
        let output = make.current_dir(workspace_root()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let wanted =
            format!("/t/release/xtask {task} --prefix \"/opt/a b\" --destdir \"/tmp/c d\"");
        assert!(said.contains(&wanted), "{said}");
    }
}
