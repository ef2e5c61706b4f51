//! Profiles that cannot be had, and how files become profiles.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::number::{self, Field};
use crate::model::config::ConfigError;

/// A profile that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a name nor a file.
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
    /// A file that cannot be read, or is too long.
    #[error("{path}: not a {kind} profile: {cause}; {SHOWN_BY}{shown}` shows one", shown = shown_by(kind))]
    Read {
        /// `host` or `device`.
        kind: &'static str,
        /// The file.
        path: String,
        /// Why not.
        cause: std::io::Error,
    },
    /// A file that is no profile.
    #[error("{path}: not a {kind} profile: {cause}{place}; {SHOWN_BY}{shown}` shows one", shown = shown_by(kind))]
    Parse {
        /// `host` or `device`.
        kind: &'static str,
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        cause: serde_json::Error,
        /// What stands there, and what may.
        place: String,
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

const SHOWN_BY: &str = "`crosslane pcie sim --print-";

fn shown_by(kind: &str) -> &'static str {
    if kind == "host" { "profile" } else { "device" }
}

/// Bytes of a line that a message shows: those before the fault, and a few behind it.
const SHOWN: usize = 60;
const BEHIND: usize = 8;
/// More than any profile has, for files that never end.
const MOST_BYTES: u64 = 1 << 20;

/// What stands at the fault, and if it is a number of the profile, what it may be.
fn place<P>(text: &str, cause: &serde_json::Error, fields: &[Field<P>]) -> String {
    let line = text.lines().nth(cause.line().saturating_sub(1));
    let line = line.unwrap_or_default().as_bytes();
    let end = line.len().min(cause.column() + BEHIND);
    let part = String::from_utf8_lossy(&line[end.saturating_sub(SHOWN)..end]);
    let shown: String = part.trim().chars().filter(|c| !c.is_control()).collect();
    if shown.is_empty() {
        return shown;
    }
    let before = String::from_utf8_lossy(&line[..line.len().min(cause.column())]);
    let key = before
        .rsplit("\":")
        .nth(1)
        .and_then(|s| s.rsplit('"').next());
    let named = |field: &&Field<P>| field.0.rsplit('.').next() == key;
    let legal = fields
        .iter()
        .find(named)
        .map(|(field, _, legal)| format!("; {field} must be {legal}"));
    format!(": `{shown}`{}", legal.unwrap_or_default())
}

fn text(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MOST_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(std::io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

/// The profile in the file of this name.
pub(super) fn read<P: DeserializeOwned>(
    kind: &'static str,
    name: &str,
    known: &str,
    fields: &[Field<P>],
) -> Result<P, ProfileError> {
    let path = name.to_owned();
    let text = match text(name) {
        Ok(text) => text,
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            return Err(ProfileError::Unknown {
                kind,
                name: path,
                known: known.to_owned(),
                cause,
            });
        }
        Err(cause) => return Err(ProfileError::Read { kind, path, cause }),
    };
    serde_json::from_str(&text).map_err(|cause| {
        let file = serde_json::from_str(&text).unwrap_or_default();
        number::find_wrong(&file, name, fields).unwrap_or_else(|| ProfileError::Parse {
            kind,
            path,
            place: place(&text, &cause, fields),
            cause,
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
