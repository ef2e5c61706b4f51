//! Finds what the workspace builds: beside the folder of the test that runs.

use std::path::{Path, PathBuf};

/// The built file `name`, in the folder of the profile that this test was built with.
///
/// # Panics
/// When it has not been built.
pub fn binary(name: &str) -> PathBuf {
    let path = profile_folder().join(name);
    assert!(
        path.is_file(),
        "{} has not been built: run `cargo build --release --workspace`, then the test with --release",
        path.display()
    );
    path
}

/// A test lies in `target/PROFILE/deps`.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a file");
    test.ancestors()
        .nth(2)
        .map(Path::to_owned)
        .expect("a test lies in target/PROFILE/deps")
}
