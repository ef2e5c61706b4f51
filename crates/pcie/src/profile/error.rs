//! Profiles that cannot be had, and how files become profiles.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::model::config::ConfigError;

/// A profile that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a name nor a readable file.
    #[error(
        "{kind} profile {name:?} is unknown: --{kind} takes {known}, or the path of a JSON profile ({cause})"
    )]
    Unknown {
        /// `host` or `device`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// The names that exist.
        known: String,
        /// Why it is no file either.
        cause: std::io::Error,
    },
    /// A file that is no profile.
    #[error("{path}: not a {kind} profile: {cause}; `crosslane pcie sim --print-{shown}` shows one",
        shown = if *kind == "host" { "profile" } else { "device" })]
    Parse {
        /// `host` or `device`.
        kind: &'static str,
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        cause: serde_json::Error,
    },
    /// A field outside its range.
    #[error("{kind} profile {profile}: {field} is {value:?}, but must be {legal}")]
    Range {
        /// `host` or `device`.
        kind: &'static str,
        /// Which profile.
        profile: String,
        /// Which field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        legal: &'static str,
    },
    /// A link that cannot exist.
    #[error("host profile {profile}: {cause}")]
    Link {
        /// Which profile.
        profile: String,
        /// What is wrong.
        cause: ConfigError,
    },
}

/// The profile in the file of this name.
pub(super) fn read<P: DeserializeOwned>(
    kind: &'static str,
    name: &str,
    known: &str,
) -> Result<P, ProfileError> {
    let text = std::fs::read_to_string(name).map_err(|cause| ProfileError::Unknown {
        kind,
        name: name.to_owned(),
        known: known.to_owned(),
        cause,
    })?;
    serde_json::from_str(&text).map_err(|cause| ProfileError::Parse {
        kind,
        path: name.to_owned(),
        cause,
    })
}

/// What a profile in this file is called.
pub(super) fn stem(path: &str) -> String {
    let stem = Path::new(path).file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// An error unless the value is good.
pub(super) fn range(
    kind: &'static str,
    profile: &str,
    (field, value): (&'static str, f64),
    good: bool,
    legal: &'static str,
) -> Result<(), ProfileError> {
    if good {
        return Ok(());
    }
    Err(ProfileError::Range {
        kind,
        profile: profile.to_owned(),
        field,
        value,
        legal,
    })
}
