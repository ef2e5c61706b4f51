//! Debian's source packages, fetched without touching the system's own lists.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Fetch and unpack a source package below `folder`, patched as Debian does; return its tree. One
/// that is there already is taken as it is.
pub fn fetch(package: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let place = folder.join("source");
    if let Some(tree) = tree_in(&place) {
        return Ok(tree);
    }
    let work = Workplace::new(&folder.join("apt"))?;
    work.apt_get(&["update"])?;
    std::fs::create_dir_all(&place)?;
    work.fetch(package)
        .with_context(|| format!("cannot fetch the source package {package}"))?;
    let tree = tree_in(&work.folder)
        .with_context(|| format!("the source package {package} has no folder"))?;
    let name = tree.file_name().context("the tree has a name")?;
    let target = place.join(name);
    std::fs::rename(&tree, &target)?;
    Ok(target)
}

/// The tree of the package that was fetched into `folder`.
pub fn tree(folder: &Path) -> Option<PathBuf> {
    tree_in(&folder.join("source"))
}

fn tree_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let is_tree = |path: &PathBuf| path.join("debian/changelog").is_file();
    entries.map(|entry| entry.path()).find(is_tree)
}

/// apt with lists of its own.
struct Workplace {
    folder: PathBuf,
}

impl Workplace {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder.join("lists/partial"))?;
        let work = Self {
            folder: folder.to_owned(),
        };
        std::fs::write(work.sources(), deb_src()?)?;
        Ok(work)
    }

    fn sources(&self) -> PathBuf {
        self.folder.join("sources.list")
    }

    /// A mirror may list a package that it does not hold, while another release has it.
    fn fetch(&self, package: &str) -> anyhow::Result<()> {
        let Err(error) = self.apt_get(&["source", package]) else {
            return Ok(());
        };
        let sources = std::fs::read_to_string(self.sources())?;
        let releases = sources.lines().filter_map(|line| line.split(' ').nth(2));
        for release in releases {
            if self
                .apt_get(&["source", &format!("{package}/{release}")])
                .is_ok()
            {
                return Ok(());
            }
        }
        Err(error)
    }

    fn apt_get(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let option = |name: &str, value: &Path| {
            let value = format!("{name}={}", value.display());
            ["-o".to_owned(), value]
        };
        let output = Command::new("apt-get")
            .args(option("Dir::Etc::SourceList", &self.sources()))
            .args(option("Dir::Etc::SourceParts", Path::new("/dev/null")))
            .args(option("Dir::State::Lists", &self.folder.join("lists")))
            .args(["-q", "-y"])
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .context("cannot start apt-get: is this Debian?")?;
        ensure!(
            output.status.success(),
            "apt-get {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }
}

/// Where the system's binary packages come from, their sources come from as well.
fn deb_src() -> anyhow::Result<String> {
    let format = "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .output()
        .context("cannot start apt-get: is this Debian?")?;
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout)?.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    ensure!(!lines.is_empty(), "apt-get knows no place with packages");
    Ok(lines.join("\n") + "\n")
}
