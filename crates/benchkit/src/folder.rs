//! A folder that does not outlive the bench, not even one that is interrupted.

use std::path::{Path, PathBuf};

use tempfile::Builder;

use crate::registry;

/// A folder of the program's own; dropping it removes it, as does a signal on which children are stopped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder where temporary files are, named by `prefix` and chance.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn new(prefix: &str) -> std::io::Result<Self> {
        Self::within(&std::env::temp_dir(), prefix)
    }

    /// The same in the folder `place`.
    ///
    /// # Errors
    /// As the system gives them.
    pub fn within(place: &Path, prefix: &str) -> std::io::Result<Self> {
        registry::make(Builder::new().prefix(prefix), place).map(Self)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that somebody else has removed is gone, which is what is wanted.
        let _ = registry::remove(&self.0);
    }
}
