//! `cargo xtask install`: put what has been built in release mode where users look for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::workspace_root;

/// Arguments of `cargo xtask install`.
#[derive(clap::Args)]
pub struct Args {
    /// Where programs are to find it
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
    /// Put it below this folder instead, as packagers do
    #[arg(long)]
    destdir: Option<PathBuf>,
}

/// What goes where below the prefix, from the folder of release builds.
const BUILT: [(&str, &str); 6] = [
    ("crosslane", "bin/crosslane"),
    // The programs that `crosslane bench` measures; it looks for them beside itself.
    ("crosslane-sockbench", "bin/crosslane-sockbench"),
    ("crosslane-apibench", "bin/crosslane-apibench"),
    ("libcrosslane.so", "lib/crosslane/libcrosslane.so"),
    ("libcrosslane_api.so", "lib/libcrosslane_api.so"),
    ("libcrosslane_api.a", "lib/libcrosslane_api.a"),
];

/// Install.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let below = match &args.destdir {
        Some(destdir) => destdir.join(args.prefix.strip_prefix("/").unwrap_or(&args.prefix)),
        None => args.prefix.clone(),
    };
    let built = crate::build::target().join("release");
    for (from, to) in BUILT {
        copy(&built.join(from), &below.join(to))
            .context("build first: cargo build --release --workspace")?;
    }
    let root = workspace_root();
    let header = root.join("crates/api/include/crosslane.h");
    copy(&header, &below.join("include/crosslane.h"))?;
    for page in fs::read_dir(root.join("docs/man"))? {
        let page = page?;
        copy(
            &page.path(),
            &below.join("share/man/man1").join(page.file_name()),
        )?;
    }
    let template = fs::read_to_string(root.join("crates/api/crosslane.pc.in"))?;
    let description = below.join("lib/pkgconfig/crosslane.pc");
    make_folder(&description)?;
    fs::write(&description, pkg_config(&template, &args.prefix))?;
    println!("installed below {}", below.display());
    Ok(ExitCode::SUCCESS)
}

/// The description for pkg-config.
fn pkg_config(template: &str, prefix: &Path) -> String {
    let prefix = prefix.display().to_string();
    let filled = template.replace("@PREFIX@", &prefix);
    filled.replace("@VERSION@", env!("CARGO_PKG_VERSION"))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    make_folder(to)?;
    // A program that runs keeps the file that it has.
    let _ = fs::remove_file(to);
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn make_folder(of: &Path) -> anyhow::Result<()> {
    let folder = of.parent().context("an installed file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_the_prefix_and_the_version() {
        let path = workspace_root().join("crates/api/crosslane.pc.in");
        let filled = pkg_config(
            &fs::read_to_string(path).unwrap(),
            Path::new("/opt/crosslane"),
        );
        assert!(!filled.contains('@'), "{filled}");
        assert!(filled.starts_with("prefix=/opt/crosslane\n"), "{filled}");
        assert!(filled.contains(concat!("\nVersion: ", env!("CARGO_PKG_VERSION"), "\n")));
    }
}
