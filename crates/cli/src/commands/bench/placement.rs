//! On which CPUs the two programs of a bench run.

use crosslane_sockbench::cpus::{PlaceError, two_cpus};

/// Where the two programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Where the scheduler puts them
    Free,
    /// On two different CPUs
    Apart,
    /// On the same CPU
    Together,
}

impl Placement {
    /// The CPUs of the server and of the client, when they are to be pinned.
    pub fn cpus(self) -> Result<Option<(usize, usize)>, PlaceError> {
        Ok(match self {
            Self::Free => None,
            Self::Apart => Some(two_cpus()?),
            Self::Together => Some(two_cpus()?).map(|(first, _)| (first, first)),
        })
    }
}
