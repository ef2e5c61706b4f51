//! `cargo xtask tidy`: the rules of the house that rustc and clippy do not know.
//!
//! What is allowed stands in `xtask/tidy.toml`. Each rule is a pure function from what it looks
//! at to a list of violations, so that its tests can show it a violation and see it caught.

mod allowed;
mod docs;
mod graph;
mod length;
mod source;
mod unsafety;

use std::fmt;
use std::process::ExitCode;

use anyhow::Context;

use allowed::Allowed;
use source::Source;

/// One broken rule: where, what, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    place: String,
    what: String,
}

impl Violation {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Check the whole workspace and print every violation.
pub fn run() -> anyhow::Result<ExitCode> {
    let root = crate::workspace_root();
    let allowed = Allowed::load(&root.join("xtask/tidy.toml"))?;
    let packages = graph::Package::load_all(root).context("cannot read the crate graph")?;
    let sources = Source::load_all(root)?;

    let mut violations = graph::check(&packages, &allowed.edges);
    violations.extend(length::check(&sources, &allowed));
    violations.extend(unsafety::check(&sources, &allowed.unsafe_places));
    violations.extend(unsafety::check_forbidden_at_roots(
        &sources,
        &packages,
        &allowed.unsafe_places,
    ));
    violations.extend(docs::check_sources(&sources));
    violations.extend(docs::check_manifests(&packages));

    for violation in &violations {
        println!("tidy: {violation}");
    }
    println!(
        "tidy: {} crates, {} files, {} violations",
        packages.len(),
        sources.len(),
        violations.len()
    );
    Ok(if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
