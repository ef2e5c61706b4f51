//! The root file system of a machine, made of files of this one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::archive::Archive;
use super::parts::Parts;

/// What the kernel starts.
const INIT: &str = include_str!("init.sh");

/// Drivers of the network between the machines.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_net"];

/// A root file system being put together.
pub struct Image {
    archive: Archive,
    paths: BTreeSet<String>,
    /// In the order in which they are loaded.
    modules: String,
}

impl Image {
    /// One that boots, with busybox and a network.
    ///
    /// # Panics
    /// When a part cannot be read.
    pub fn new(parts: &Parts) -> Self {
        let mut image = Self {
            archive: Archive::default(),
            paths: BTreeSet::new(),
            modules: String::new(),
        };
        for folder in ["dev", "proc", "sys", "tmp", "run", "root"] {
            image.folder(folder);
        }
        image.file("init", INIT.as_bytes());
        image.copy(&parts.busybox, "bin/busybox");
        image.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n");
        MODULES
            .iter()
            .fold(image, |image, module| image.with_module(parts, module))
    }

    /// Have this module of the kernel, and those that it needs, loaded when the machine starts.
    ///
    /// # Panics
    /// When the kernel has no such module.
    #[must_use]
    pub fn with_module(mut self, parts: &Parts, module: &str) -> Self {
        for (name, content) in parts.module(module) {
            if self.file(&format!("lib/modules/{name}.ko"), &content) {
                self.modules += &format!("{name}\n");
            }
        }
        self
    }

    /// Add the program or library `from` as `to`, and the libraries that it needs.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn with(mut self, from: impl AsRef<Path>, to: &str) -> Self {
        let from = from.as_ref();
        self.copy(from, to);
        for library in libraries(from) {
            self.copy(Path::new(&library), &library);
        }
        self
    }

    /// Add a symbolic link.
    #[must_use]
    pub fn with_link(mut self, path: &str, target: &str) -> Self {
        self.parents(path);
        if self.is_new(path) {
            self.archive.link(path, target);
        }
        self
    }

    /// The archive for the kernel.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let names = std::mem::take(&mut self.modules);
        self.file("lib/modules/list", names.as_bytes());
        self.archive.finish()
    }

    fn copy(&mut self, from: &Path, to: &str) {
        let content = std::fs::read(from)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", from.display()));
        self.file(to, &content);
    }

    /// Add a file unless it is there already.
    fn file(&mut self, path: &str, content: &[u8]) -> bool {
        self.parents(path);
        let is_new = self.is_new(path);
        if is_new {
            self.archive.file(path, content);
        }
        is_new
    }

    fn parents(&mut self, path: &str) {
        for (end, _) in path.trim_start_matches('/').match_indices('/') {
            self.folder(&path.trim_start_matches('/')[..end]);
        }
    }

    fn folder(&mut self, path: &str) {
        if self.is_new(path) {
            self.archive.folder(path);
        }
    }

    fn is_new(&mut self, path: &str) -> bool {
        self.paths.insert(path.trim_start_matches('/').to_owned())
    }
}

/// The shared libraries that `program` needs, by the paths at which it will look for them.
fn libraries(program: &Path) -> Vec<String> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .expect("ldd comes with libc");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| {
            assert!(
                !line.contains("not found"),
                "{}: {}",
                program.display(),
                line.trim()
            );
            line.split_whitespace().find(|word| word.starts_with('/'))
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_needs_libc_and_its_loader() {
        let found = libraries(Path::new("/bin/ls"));
        for wanted in ["/libc.so.6", "/ld-linux"] {
            assert!(
                found.iter().any(|path| path.contains(wanted)),
                "{wanted}: {found:?}"
            );
        }
    }
}
