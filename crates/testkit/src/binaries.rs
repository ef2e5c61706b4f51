//! Finds what the workspace builds, in release mode, as users run it.

use std::path::{Path, PathBuf};

/// The built file `name`. It is as old as the last `cargo build --release --workspace`, with
/// `--lib --bins --examples` for examples.
///
/// # Panics
/// When it has not been built.
pub fn binary(name: &str) -> PathBuf {
    let path = target_folder().join("release").join(name);
    assert!(
        path.is_file(),
        "{} has not been built: run `cargo build --release --workspace --lib --bins --examples`",
        path.display()
    );
    path
}

/// The folder that cargo builds into: a test lies in `target/PROFILE/deps`.
pub fn target_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a file");
    test.ancestors()
        .nth(3)
        .map(Path::to_owned)
        .expect("a test lies in target/PROFILE/deps")
}
