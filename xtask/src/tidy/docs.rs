//! Public items are documented: rustc's `missing_docs` is on for every crate and off nowhere.

use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Violation;
use super::graph::Package;
use super::source::Source;

/// Every file that switches the lint off.
pub fn check_sources(sources: &[Source]) -> Vec<Violation> {
    let switches_off = |source: &&Source| {
        let mut search = AllowsMissingDocs(false);
        search.visit_file(&source.syntax);
        search.0
    };
    sources
        .iter()
        .filter(switches_off)
        .map(|source| Violation::new(&source.path, "allows missing_docs: write the docs"))
        .collect()
}

/// Every crate that does not take the workspace's lints, and a workspace without the lint.
pub fn check_manifests(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let root = crate::workspace_root().join("Cargo.toml");
    if value_at(&root, &["workspace", "lints", "rust", "missing_docs"]).is_none() {
        violations.push(Violation::new(
            "Cargo.toml",
            "lacks missing_docs in workspace.lints.rust",
        ));
    }
    violations.extend(
        packages
            .iter()
            .filter(|package| !inherits_lints(&package.manifest_path))
            .map(|package| Violation::new(&package.name, "lacks `[lints] workspace = true`")),
    );
    violations
}

fn inherits_lints(manifest: &Path) -> bool {
    value_at(manifest, &["lints", "workspace"]) == Some(toml::Value::Boolean(true))
}

fn value_at(manifest: &Path, keys: &[&str]) -> Option<toml::Value> {
    let text = std::fs::read_to_string(manifest).ok()?;
    let mut value = toml::Value::Table(text.parse().ok()?);
    for key in keys {
        value = value.get(key)?.clone();
    }
    Some(value)
}

struct AllowsMissingDocs(bool);

impl<'ast> Visit<'ast> for AllowsMissingDocs {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let is_switch = attribute.path().is_ident("allow") || attribute.path().is_ident("expect");
        if let (true, syn::Meta::List(list)) = (is_switch, &attribute.meta) {
            self.0 |= names_the_lint(&list.tokens);
        }
        visit::visit_attribute(self, attribute);
    }
}

fn names_the_lint(tokens: &TokenStream) -> bool {
    tokens
        .clone()
        .into_iter()
        .any(|tree| matches!(tree, TokenTree::Ident(ident) if ident == "missing_docs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switching_the_lint_off_is_caught_at_any_depth() {
        let crate_wide = Source::parse("a.rs", "#![allow(dead_code, missing_docs)]").unwrap();
        let one_item = Source::parse("b.rs", "mod m { #[expect(missing_docs)] pub fn f() {} }");
        let innocent = Source::parse(
            "c.rs",
            "#![warn(missing_docs)] #[allow(dead_code)] fn f() {}",
        );
        let sources = [crate_wide, one_item.unwrap(), innocent.unwrap()];
        let places: Vec<_> = check_sources(&sources)
            .into_iter()
            .map(|v| v.place)
            .collect();
        assert_eq!(places, ["a.rs", "b.rs"]);
    }

    #[test]
    fn a_manifest_without_the_lints_is_caught() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        std::fs::write(&manifest, "[package]\nname = \"a\"\n").unwrap();
        assert!(!inherits_lints(&manifest));
        std::fs::write(&manifest, "[lints]\nworkspace = true\n").unwrap();
        assert!(inherits_lints(&manifest));
    }
}
