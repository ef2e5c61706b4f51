//! Profiles that cannot be had, and how files become profiles.

use std::path::Path;

use serde::de::DeserializeOwned;

use super::number::{self, Field};
use crate::model::config::ConfigError;

/// A profile that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a name nor a readable file.
    #[error(
        "{kind} profile {name:?} is unknown: known are {known}, or the path of a JSON profile ({cause})"
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
    #[error("{path}: not a {kind} profile: {cause}{line}; `crosslane pcie sim --print-{shown}` shows one",
        shown = if *kind == "host" { "profile" } else { "device" }, line = shown_line(line))]
    Parse {
        /// `host` or `device`.
        kind: &'static str,
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        cause: serde_json::Error,
        /// The line in which it is found.
        line: String,
    },
    /// A number outside its range.
    #[error("{place}: {field} is {value}, but must be {legal}")]
    Range {
        /// Which profile, or its file.
        place: String,
        /// Which number.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        legal: String,
    },
    /// A link that cannot exist.
    #[error("{place}: link: {cause}")]
    Link {
        /// Which profile, or its file.
        place: String,
        /// What is wrong.
        cause: ConfigError,
    },
}

/// Characters of a line that a message shows.
const SHOWN: usize = 60;

fn shown_line(line: &str) -> String {
    let printable = line.trim().chars().filter(|c| !c.is_control());
    let shown: String = printable.take(SHOWN).collect();
    if shown.is_empty() {
        return shown;
    }
    format!(": `{shown}`")
}

/// The profile in the file of this name.
pub(super) fn read<P: DeserializeOwned>(
    kind: &'static str,
    name: &str,
    known: &str,
    fields: &[Field<P>],
) -> Result<P, ProfileError> {
    let text = std::fs::read_to_string(name).map_err(|cause| ProfileError::Unknown {
        kind,
        name: name.to_owned(),
        known: known.to_owned(),
        cause,
    })?;
    serde_json::from_str(&text).map_err(|cause| {
        let file = serde_json::from_str(&text).unwrap_or_default();
        number::find_wrong(&file, name, fields).unwrap_or_else(|| {
            let line = text.lines().nth(cause.line().saturating_sub(1));
            ProfileError::Parse {
                kind,
                path: name.to_owned(),
                line: line.unwrap_or_default().to_owned(),
                cause,
            }
        })
    })
}

/// What a profile in this file is called.
pub(super) fn stem(path: &str) -> String {
    let stem = Path::new(path).file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// A number that does not go with another one.
pub(super) fn wrong(
    place: &dyn Fn() -> String,
    field: &'static str,
    value: impl ToString,
    legal: String,
) -> ProfileError {
    ProfileError::Range {
        place: place(),
        field,
        value: value.to_string(),
        legal,
    }
}
