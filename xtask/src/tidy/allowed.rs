//! What `xtask/tidy.toml` allows.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// Crate name to the workspace crates that it may depend on.
pub type Edges = BTreeMap<String, Vec<String>>;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    pub limits: Limits,
    pub edges: Edges,
    /// Path to the number of lines that it may have at most.
    #[serde(default)]
    pub long_files: BTreeMap<String, usize>,
    /// `path::function` to the number of lines that it may have at most.
    #[serde(default)]
    pub long_functions: BTreeMap<String, usize>,
    pub unsafe_places: Vec<UnsafePlace>,
}

/// How long a file and a function may be that are in no list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub file_lines: usize,
    pub function_lines: usize,
}

/// A file or folder in which the keyword `unsafe` may stand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnsafePlace {
    pub path: String,
    /// How often it may stand there altogether, where the design says "little".
    pub at_most: Option<usize>,
    /// Why it may; a reader of the list wants to know.
    pub why: String,
}

impl UnsafePlace {
    /// Whether `path` is this place or lies inside it.
    pub fn covers(&self, path: &str) -> bool {
        Path::new(path).starts_with(&self.path)
    }
}

impl Allowed {
    /// Read the file at `path`.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_covers_whole_path_components_only() {
        let place = UnsafePlace {
            path: "crates/sys".into(),
            at_most: None,
            why: String::new(),
        };
        assert!(place.covers("crates/sys/src/lib.rs"));
        assert!(!place.covers("crates/system/src/lib.rs"));
    }

    #[test]
    fn the_real_file_is_well_formed() {
        let path = crate::workspace_root().join("xtask/tidy.toml");
        assert!(!Allowed::load(&path).unwrap().edges.is_empty());
    }
}
