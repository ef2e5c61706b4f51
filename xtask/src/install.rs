//! `cargo xtask install` and `uninstall`: put what has been built in release mode where users look for it, and take
//! the same files away again.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};

use crate::workspace_root;

/// Where it goes unless told otherwise, and what stands in files that need no template.
const DEFAULT_PREFIX: &str = "/usr/local";

/// Arguments of `cargo xtask install`.
#[derive(clap::Args)]
#[command(after_long_help = listing())]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Keep line tables, for debuggers, with which the command is five times as long
    #[arg(long)]
    unstripped: bool,
}

/// Where to install, or what to remove.
#[derive(clap::Args)]
pub struct Place {
    /// Where programs are to find it
    #[arg(long, default_value = DEFAULT_PREFIX)]
    prefix: PathBuf,
    /// The folder below which PREFIX is meant, as packagers have it
    #[arg(long)]
    destdir: Option<PathBuf>,
}

impl Place {
    /// The folder that holds `bin` and the others for now.
    fn folder(&self) -> PathBuf {
        match &self.destdir {
            Some(destdir) => destdir.join(self.prefix.strip_prefix("/").unwrap_or(&self.prefix)),
            None => self.prefix.clone(),
        }
    }
}

/// How a file gets to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// From the folder of release builds, without line tables.
    Built,
    /// From the sources, as it is.
    Copied,
    /// From the sources, with the prefix and the version put in.
    Filled,
    /// Another name of a file beside it.
    Linked,
}

/// A file to install.
struct Item {
    how: How,
    from: PathBuf,
    /// Below the prefix.
    to: PathBuf,
    mode: u32,
}

const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;

/// What goes where below the prefix, but for the manual pages. The library before the command that looks for it.
const FILES: [(How, &str, &str, u32); 10] = [
    (
        How::Built,
        "libcrosslane.so",
        "lib/crosslane/libcrosslane.so",
        DATA,
    ),
    (How::Built, "crosslane", "bin/crosslane", PROGRAM),
    // The programs that `crosslane bench` measures; it looks for them beside itself.
    (
        How::Built,
        "crosslane-sockbench",
        "bin/crosslane-sockbench",
        PROGRAM,
    ),
    (
        How::Built,
        "crosslane-apibench",
        "bin/crosslane-apibench",
        PROGRAM,
    ),
    (
        How::Built,
        "libcrosslane_api.so",
        "lib/libcrosslane_api.so.0",
        DATA,
    ),
    // Programs are linked by this name, and start with the one above (`crates/api/build.rs`).
    (
        How::Linked,
        "libcrosslane_api.so.0",
        "lib/libcrosslane_api.so",
        DATA,
    ),
    (
        How::Built,
        "libcrosslane_api.a",
        "lib/libcrosslane_api.a",
        DATA,
    ),
    (
        How::Copied,
        "crates/api/include/crosslane.h",
        "include/crosslane.h",
        DATA,
    ),
    (
        How::Filled,
        "crates/api/crosslane.pc.in",
        "lib/pkgconfig/crosslane.pc",
        DATA,
    ),
    (
        How::Filled,
        "packaging/crosslane.service",
        "lib/systemd/system/crosslane.service",
        DATA,
    ),
];

/// Where the manual pages are, and where they go.
const PAGES: (&str, &str) = ("docs/man", "share/man/man1");

/// The one folder below a prefix that is nobody's but ours.
const OWN_FOLDER: &str = "lib/crosslane";

/// What the help text says of the files.
fn listing() -> String {
    let files = FILES.map(|(_, _, to, _)| format!("  {to}\n")).concat();
    format!(
        "Installed below PREFIX, each file at one moment, so that programs which run meanwhile keep the one they \
         have:\n{files}  {}/crosslane*.1\n\nBuild first: cargo build --release --workspace. Where root has no cargo: \
         make install PREFIX=... DESTDIR=...\nuninstall removes these files.",
        PAGES.1
    )
}

/// Install.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let built = crate::build::target().join("release");
    let below = args.place.folder();
    install(&built, &below, &args.place.prefix, !args.unstripped)?;
    println!("installed below {}", below.display());
    Ok(ExitCode::SUCCESS)
}

/// Remove what [`run`] has installed.
pub fn remove(place: &Place) -> anyhow::Result<ExitCode> {
    let below = place.folder();
    let removed = uninstall(&below)?;
    println!("removed {removed} files below {}", below.display());
    Ok(ExitCode::SUCCESS)
}

/// Every file, from the folder of release builds and the sources.
fn items(built: &Path) -> anyhow::Result<Vec<Item>> {
    let root = workspace_root();
    let mut items: Vec<_> = FILES
        .iter()
        .map(|&(how, from, to, mode)| {
            let from = match how {
                How::Built => built.join(from),
                How::Copied | How::Filled => root.join(from),
                How::Linked => from.into(),
            };
            let to = to.into();
            Item {
                how,
                from,
                to,
                mode,
            }
        })
        .collect();
    for page in fs::read_dir(root.join(PAGES.0))? {
        let page = page?;
        items.push(Item {
            how: How::Copied,
            from: page.path(),
            to: Path::new(PAGES.1).join(page.file_name()),
            mode: DATA,
        });
    }
    Ok(items)
}

fn install(built: &Path, below: &Path, prefix: &Path, strip: bool) -> anyhow::Result<()> {
    let items = items(built)?;
    // Before the first of them is replaced.
    for item in items.iter().filter(|item| item.how != How::Linked) {
        let is_there = item.from.is_file();
        let from = item.from.display();
        ensure!(
            is_there,
            "{from} is not there; build first: cargo build --release --workspace"
        );
    }
    for item in &items {
        let from = item.from.as_path();
        replace(&below.join(&item.to), item.mode, |new| match item.how {
            How::Built if strip => stripped(from, new),
            How::Built | How::Copied => copied(from, new),
            How::Filled => Ok(fs::write(new, filled(&fs::read_to_string(from)?, prefix))?),
            How::Linked => Ok(symlink(from, new)?),
        })
        .with_context(|| format!("cannot install {}", below.join(&item.to).display()))?;
    }
    Ok(())
}

/// Removes what [`install`] has put there; returns how many files there were.
fn uninstall(below: &Path) -> anyhow::Result<usize> {
    let mut removed = 0;
    for item in items(Path::new(""))? {
        let path = below.join(&item.to);
        // Of an install that was interrupted.
        remove_file(&unfinished(&path))?;
        removed += usize::from(remove_file(&path)?);
    }
    // What somebody else has put into it stays.
    let _ = fs::remove_dir(below.join(OWN_FOLDER));
    Ok(removed)
}

/// Puts a file to its place at one moment: there is the old one or the new one, and each is whole. Programs
/// that have the old one open or mapped keep it.
fn replace(
    to: &Path,
    mode: u32,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    make_folder(to.parent().context("an installed file has a folder")?)?;
    let new = unfinished(to);
    remove_file(&new)?;
    let written = write(&new).and_then(|()| {
        if !new.is_symlink() {
            fs::set_permissions(&new, Permissions::from_mode(mode))?;
        }
        Ok(fs::rename(&new, to)?)
    });
    if written.is_err() {
        // The error says more than this could.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Where a file is written before it goes to its place: on the same file system.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.crosslane-install"))
}

/// Whether it was there.
fn remove_file(path: &Path) -> anyhow::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// Makes a folder that everybody may look into, whatever the umask.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make_folder(parent)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        made => made.with_context(|| format!("cannot make {}", folder.display()))?,
    }
    Ok(fs::set_permissions(
        folder,
        Permissions::from_mode(PROGRAM),
    )?)
}

fn copied(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Copies without line tables. The names of functions stay, for backtraces.
fn stripped(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).args([to, from]);
    let status = strip.status().context(
        "cannot start strip, which comes with the linker (binutils); or use --unstripped",
    )?;
    ensure!(
        status.success(),
        "strip fails on {}; use --unstripped",
        from.display()
    );
    Ok(())
}

/// A text with what depends on where it is installed.
fn filled(text: &str, prefix: &Path) -> String {
    let prefix = prefix.display().to_string();
    text.replace("@PREFIX@", &prefix)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace(&format!("{DEFAULT_PREFIX}/bin/"), &format!("{prefix}/bin/"))
}

#[cfg(test)]
mod tests;
