//! `cargo xtask header`: make the C header of the native interface from its Rust source.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

/// What the functions for C are made of; the order is that of the header.
const SOURCES: [&str; 5] = [
    "c.rs",
    "c/opening.rs",
    "c/sending.rs",
    "c/receiving.rs",
    "c/waiting.rs",
];

const PREFACE: &str = "\
/* Crosslane's native interface for C: TCP connections whose messages are built and read where they
 * travel. docs/api.md is a tutorial; `pkg-config --cflags --libs crosslane` tells how to link.
 *
 * Made by `cargo xtask header` from crates/api/src/c.rs and what is below it; do not edit. */";

/// cbindgen writes no constants that are text.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("\n// The version of this header.\n#define CROSSLANE_VERSION \"{version}\"")
}

fn path() -> PathBuf {
    crate::workspace_root().join("crates/api/include/crosslane.h")
}

/// Write the header.
pub fn run() -> anyhow::Result<ExitCode> {
    let path = path();
    std::fs::write(&path, generate()?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// The header as it should be.
fn generate() -> anyhow::Result<String> {
    let folder = crate::workspace_root().join("crates/api/src");
    let config = Config {
        language: Language::C,
        style: Style::Both,
        header: Some(PREFACE.into()),
        include_guard: Some("CROSSLANE_H".into()),
        no_includes: true,
        sys_includes: ["stddef.h", "sys/types.h"].map(Into::into).to_vec(),
        after_includes: Some(version()),
        cpp_compat: true,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::C99,
        line_length: 100,
        ..Config::default()
    };
    let builder = SOURCES.iter().fold(Builder::new(), |builder, source| {
        builder.with_src(folder.join(source))
    });
    let bindings = builder.with_config(config).generate();
    let mut header = Vec::new();
    bindings
        .context("cbindgen cannot read crates/api/src/c.rs")?
        .write(&mut header);
    Ok(String::from_utf8(header)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_header_is_what_the_source_says() {
        let committed = std::fs::read_to_string(super::path()).unwrap();
        assert_eq!(
            committed,
            super::generate().unwrap(),
            "run `cargo xtask header`"
        );
    }
}
