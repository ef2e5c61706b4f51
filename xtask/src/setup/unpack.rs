//! Debian packages whose files are for virtual machines: fetched and unpacked, not installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Where they are unpacked to, and where the tests look.
pub fn folder() -> PathBuf {
    crate::build::target().join("guest")
}

/// Fetch and unpack `package`.
pub fn unpack(package: &str) -> anyhow::Result<()> {
    let folder = folder();
    let fetched = folder.join("packages").join(package);
    // What an earlier attempt has left may be half a file.
    let _ = std::fs::remove_dir_all(&fetched);
    std::fs::create_dir_all(&fetched)?;
    if fetch(package, &fetched).is_err() {
        // The lists of a fresh machine are empty or old.
        run("apt-get", &["update", "-q"], &fetched)?;
        fetch(package, &fetched)?;
    }
    for entry in std::fs::read_dir(&fetched)? {
        let name = entry?.file_name();
        let name = name.to_str().context("packages have plain names")?;
        run("dpkg-deb", &["--extract", name, "../.."], &fetched)?;
    }
    link_kernel(&folder.join("boot"))
}

/// Fetch `package` into a folder; of one that only names others, the first of those.
fn fetch(package: &str, into: &Path) -> anyhow::Result<()> {
    let depends = run("apt-cache", &["depends", "--important", package], into)?;
    let first = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "));
    let names_others = package.starts_with("linux-image-");
    let wanted = first.filter(|_| names_others).unwrap_or(package);
    run("apt-get", &["download", "-q", wanted], into)?;
    Ok(())
}

/// Give the kernel a name without its version.
fn link_kernel(boot: &Path) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(boot).into_iter().flatten().flatten();
    let mut kernels: Vec<_> = entries
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        .collect();
    kernels.sort();
    let Some(newest) = kernels.pop() else {
        return Ok(());
    };
    let link = boot.join("vmlinuz");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(newest, &link)
        .with_context(|| format!("cannot make {}", link.display()))
}

/// Run a program of Debian's and return what it prints.
fn run(program: &str, arguments: &[&str], folder: &Path) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}: is this Debian?"))?;
    ensure!(
        output.status.success(),
        "{program} {} failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_linked() {
        let boot = std::env::temp_dir().join(format!("crosslane-boot-{}", std::process::id()));
        std::fs::create_dir_all(&boot).unwrap();
        for name in ["vmlinuz-6.1.0-1", "vmlinuz-6.1.0-2", "config-6.1.0-3"] {
            std::fs::write(boot.join(name), name).unwrap();
        }
        link_kernel(&boot).unwrap();
        link_kernel(&boot).unwrap();
        let linked = std::fs::read_link(boot.join("vmlinuz")).unwrap();
        std::fs::remove_dir_all(&boot).unwrap();
        assert_eq!(linked, Path::new("vmlinuz-6.1.0-2"));
    }
}
