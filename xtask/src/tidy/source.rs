//! The workspace's Rust files, parsed once for all rules.

use std::ffi::OsStr;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use proc_macro2::TokenStream;
use walkdir::WalkDir;

/// One Rust file.
pub struct Source {
    /// Relative to the workspace root, with `/`.
    pub path: String,
    pub lines: usize,
    pub tokens: TokenStream,
    pub syntax: syn::File,
}

impl Source {
    /// Parse `text`, which stands at `path`.
    pub fn parse(path: &str, text: &str) -> anyhow::Result<Self> {
        let tokens = TokenStream::from_str(text)
            .map_err(|error| anyhow::anyhow!("cannot split {path} into tokens: {error}"))?;
        let syntax = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
        Ok(Self {
            path: path.into(),
            lines: text.lines().count(),
            tokens,
            syntax,
        })
    }

    /// All Rust files below `root` that are not build output.
    pub fn load_all(root: &Path) -> anyhow::Result<Vec<Self>> {
        let mut sources = Vec::new();
        let walk = WalkDir::new(root).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| !is_outside_the_sources(entry.file_name())) {
            let entry = entry?;
            if entry.path().extension() != Some(OsStr::new("rs")) {
                continue;
            }
            let text = std::fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {}", entry.path().display()))?;
            let path = entry
                .path()
                .strip_prefix(root)?
                .to_string_lossy()
                .into_owned();
            sources.push(Self::parse(&path, &text)?);
        }
        Ok(sources)
    }
}

fn is_outside_the_sources(name: &OsStr) -> bool {
    name == "target" || name.to_string_lossy().starts_with(".git")
}
