//! What a machine is made of: Debian's kernel for virtual machines, its modules, and busybox.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Files of Debian packages.
pub struct Parts {
    /// The kernel.
    pub kernel: PathBuf,
    /// A busybox that needs no libraries.
    pub busybox: PathBuf,
    modules: HashMap<String, PathBuf>,
}

impl Parts {
    /// What `cargo xtask setup` has unpacked.
    ///
    /// # Panics
    /// When it has not.
    pub fn unpacked() -> Self {
        let folder = crate::binaries::target_folder().join("guest");
        Self::find(&folder).unwrap_or_else(|| {
            panic!(
                "no kernel and busybox in {}: run `cargo xtask setup`",
                folder.display()
            )
        })
    }

    fn find(folder: &Path) -> Option<Self> {
        let kernel = folder.join("boot/vmlinuz");
        let busybox = folder.join("bin/busybox");
        if !kernel.is_file() || !busybox.is_file() {
            return None;
        }
        // A link to `vmlinuz-VERSION`.
        let target = std::fs::read_link(&kernel).ok()?;
        let version = target.to_str()?.strip_prefix("vmlinuz-")?;
        let mut modules = HashMap::new();
        collect(&folder.join("lib/modules").join(version), &mut modules);
        Some(Self {
            kernel,
            busybox,
            modules,
        })
    }

    /// The files of module `name` and of those that it needs, in the order in which they have to
    /// be loaded.
    ///
    /// # Panics
    /// When the kernel has no such module.
    pub fn module(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let path = self
            .modules
            .get(name)
            .unwrap_or_else(|| panic!("the kernel has no module {name}"));
        let content = std::fs::read(path).expect("a module that was listed can be read");
        let mut files: Vec<_> = needs(&content)
            .iter()
            .flat_map(|needed| self.module(needed))
            .collect();
        files.push((name.to_owned(), content));
        files
    }
}

/// Find all modules below `folder`.
fn collect(folder: &Path, modules: &mut HashMap<String, PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, modules);
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            modules.insert(name.replace('-', "_"), path);
        }
    }
}

/// A module says which others it needs, in the strings of its section `.modinfo`.
fn needs(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|bytes| bytes == FIELD) else {
        return Vec::new();
    };
    let list = &module[at + FIELD.len()..];
    let end = list
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(list.len());
    let list = String::from_utf8_lossy(&list[..end]).replace('-', "_");
    list.split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        let module = b"\x7fELF..\0depends=net-failover,virtio\0name=virtio_net\0";
        assert_eq!(needs(module), ["net_failover", "virtio"]);
        assert!(needs(b"\0depends=\0name=x\0").is_empty());
        assert!(needs(b"no module").is_empty());
    }
}
