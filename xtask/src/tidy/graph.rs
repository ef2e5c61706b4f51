//! Dependencies point down only: the edges between workspace crates against the allow-list.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::Violation;
use super::allowed::Edges;

/// Crates that others may depend on in their tests only.
const DEV_ONLY: [&str; 2] = ["crosslane-testkit", "crosslane-ntb-model"];

/// A workspace crate as `cargo metadata` tells of it.
#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub manifest_path: PathBuf,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

/// One entry of a `[dependencies]` table.
#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// Null for ordinary dependencies, else `dev` or `build`.
    pub kind: Option<String>,
}

/// A library, program, test, bench or example.
#[derive(Deserialize)]
pub struct Target {
    pub kind: Vec<String>,
    pub src_path: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Package {
    /// Ask cargo for the crates of the workspace at `root`.
    pub fn load_all(root: &Path) -> anyhow::Result<Vec<Self>> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
            .current_dir(root)
            .output()
            .context("cannot start cargo")?;
        ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        Ok(metadata.packages)
    }
}

/// Every edge that the list lacks, and every crate that the list does not know.
pub fn check(packages: &[Package], edges: &Edges) -> Vec<Violation> {
    let members: BTreeSet<&str> = packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut violations = Vec::new();
    for package in packages {
        let Some(allowed) = edges.get(&package.name) else {
            violations.push(Violation::new(
                &package.name,
                "is not in [edges] of xtask/tidy.toml: add it with the crates that it may use",
            ));
            continue;
        };
        let inside = package
            .dependencies
            .iter()
            .filter(|d| members.contains(d.name.as_str()));
        violations.extend(
            inside
                .filter(|dependency| !is_allowed(dependency, allowed))
                .map(|dependency| forbidden_edge(package, dependency)),
        );
    }
    violations
}

fn is_allowed(dependency: &Dependency, allowed: &[String]) -> bool {
    let is_dev = dependency.kind.as_deref() == Some("dev");
    if DEV_ONLY.contains(&dependency.name.as_str()) {
        return is_dev;
    }
    allowed.contains(&dependency.name)
}

fn forbidden_edge(package: &Package, dependency: &Dependency) -> Violation {
    let kind = dependency.kind.as_deref().unwrap_or("ordinary");
    Violation::new(
        &package.name,
        format!(
            "may not depend on {} ({kind} dependency): the crate graph points down only, \
             see [edges] in xtask/tidy.toml",
            dependency.name
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: (*name).into(),
            kind: kind.map(Into::into),
        };
        Package {
            name: name.into(),
            manifest_path: PathBuf::new(),
            dependencies: dependencies.iter().map(dependency).collect(),
            targets: Vec::new(),
        }
    }

    fn edges(list: &[(&str, &[&str])]) -> Edges {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        list.iter()
            .map(|(name, to)| ((*name).to_owned(), owned(to)))
            .collect()
    }

    #[test]
    fn an_edge_that_points_up_is_caught() {
        let packages = [
            package("sys", &[("libc", None), ("ring", None)]),
            package("ring", &[]),
        ];
        let violations = check(&packages, &edges(&[("sys", &[]), ("ring", &["sys"])]));
        assert_eq!(violations.len(), 1);
        assert!(violations[0].to_string().contains("may not depend on ring"));
    }

    #[test]
    fn an_allowed_edge_and_outside_crates_pass() {
        let packages = [
            package("sys", &[("libc", None)]),
            package("ring", &[("sys", None)]),
        ];
        assert_eq!(
            check(&packages, &edges(&[("sys", &[]), ("ring", &["sys"])])),
            []
        );
    }

    #[test]
    fn an_edge_in_tests_points_down_too() {
        let packages = [
            package("sys", &[("ring", Some("dev"))]),
            package("ring", &[]),
        ];
        assert_eq!(
            check(&packages, &edges(&[("sys", &[]), ("ring", &["sys"])])).len(),
            1
        );
    }

    #[test]
    fn testkit_is_for_tests_only() {
        let list = edges(&[("ring", &[]), (DEV_ONLY[0], &[])]);
        let dev = [
            package("ring", &[(DEV_ONLY[0], Some("dev"))]),
            package(DEV_ONLY[0], &[]),
        ];
        assert_eq!(check(&dev, &list), []);
        let ordinary = [
            package("ring", &[(DEV_ONLY[0], None)]),
            package(DEV_ONLY[0], &[]),
        ];
        assert_eq!(check(&ordinary, &list).len(), 1);
    }

    #[test]
    fn a_crate_that_the_list_does_not_know_is_caught() {
        assert_eq!(check(&[package("new", &[])], &edges(&[])).len(), 1);
    }
}
