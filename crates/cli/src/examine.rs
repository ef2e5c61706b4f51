//! Whether a program can be accelerated: the library has to be loaded into it, and the program
//! has to reach the kernel through the C library that it interposes.
//!
//! - `locate`: which file a name means, and which interpreter runs a script;
//! - `elf`: what the file says about how it is loaded;
//! - `privilege`: whether the kernel makes the loader ignore LD_PRELOAD.

mod elf;
mod locate;
mod privilege;

use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;

use serde::Serialize;

/// The answer of `crosslane check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It can be accelerated.
    Yes,
    /// It cannot.
    No,
    /// It cannot be told from the file.
    Unknown,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Dynamically linked with the C library that we interpose.
    Dynamic,
    /// No loader, so no LD_PRELOAD.
    Static,
    /// Another C library, which would refuse ours.
    OtherLibc,
    /// For another processor.
    OtherArchitecture,
    /// Go makes system calls itself.
    Go,
    /// Runs as another user, so the loader ignores LD_PRELOAD.
    Setuid,
    /// Runs as another group.
    Setgid,
    /// Has file capabilities.
    Capabilities,
    /// Uses io_uring by liburing.
    IoUring,
    /// Not a program.
    NotAProgram,
    /// Nobody may execute it, or a script's interpreter.
    NotExecutable,
    /// Cannot be found or read.
    Unreadable,
}

impl Cause {
    /// What it means for acceleration.
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Dynamic => Verdict::Yes,
            Self::IoUring | Self::Unreadable => Verdict::Unknown,
            _ => Verdict::No,
        }
    }

    /// One sentence for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Dynamic => "it is dynamically linked with glibc",
            Self::Static => "it is statically linked, so no library can be loaded into it",
            Self::OtherLibc => "it is linked with another C library than glibc",
            Self::OtherArchitecture => "it is built for another processor than this command",
            Self::Go => "it is a Go program, which makes its system calls itself",
            Self::Setuid => "it is setuid, so the loader does not preload libraries into it",
            Self::Setgid => "it is setgid, so the loader does not preload libraries into it",
            Self::Capabilities => {
                "it has file capabilities, so the loader does not preload libraries into it"
            }
            Self::IoUring => "it is linked with liburing; what it does by io_uring stays on TCP",
            Self::NotAProgram => "it is neither an ELF program nor a script",
            Self::NotExecutable => "it may not be executed",
            Self::Unreadable => "it cannot be found or read",
        }
    }

    /// What would change it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Dynamic => "nothing to do",
            Self::Static => "link it dynamically",
            Self::OtherLibc => "use a build for a distribution with glibc",
            Self::OtherArchitecture => "use a build for this machine",
            Self::Go => "use another program: a Go program stays on TCP even if linked dynamically",
            Self::Setuid | Self::Setgid => "run a copy without that bit, or run it as its owner",
            Self::Capabilities => "run a copy without capabilities, or run it as root",
            Self::IoUring => "make it use epoll, if it has a setting for that",
            Self::NotAProgram => "name a program",
            Self::NotExecutable => "make it executable (chmod +x), or name what runs it",
            Self::Unreadable => "name a program on the PATH, or by a path that you may read",
        }
    }
}

/// What was found out about one program.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// As it was named.
    pub program: String,
    /// The file that the kernel would load, interpreters followed.
    pub path: Option<PathBuf>,
    /// Scripts on the way to it.
    pub scripts: Vec<PathBuf>,
    /// The answer.
    pub verdict: Verdict,
    /// Why.
    pub cause: Cause,
    /// Why, in words.
    pub text: &'static str,
    /// What would change it.
    pub remedy: &'static str,
    /// What went wrong, where something did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Find out about a program, named as one would name it to a shell.
pub fn examine(program: &OsStr) -> Finding {
    let mut scripts = Vec::new();
    let located = locate::locate(program, &mut scripts);
    let may_run = |path: &PathBuf| locate::is_executable(path);
    let (path, cause, error) = match located {
        Ok(path) if !scripts.iter().chain([&path]).all(may_run) => {
            (Some(path), Cause::NotExecutable, None)
        }
        Ok(path) => match judge(&path) {
            Ok(cause) => (Some(path), cause, None),
            // What gives it rights can be seen all the same.
            Err(error) => match privilege::judge(&path) {
                Ok(Some(cause)) => (Some(path), cause, None),
                _ => (Some(path), Cause::Unreadable, Some(error)),
            },
        },
        Err(error) => (None, Cause::Unreadable, Some(error)),
    };
    Finding {
        program: program.to_string_lossy().into_owned(),
        path,
        scripts,
        verdict: cause.verdict(),
        cause,
        text: cause.text(),
        remedy: cause.remedy(),
        error: error.map(|error| error.to_string()),
    }
}

/// Whether the loader can load this file into a program, as LD_PRELOAD asks it to.
pub fn is_shared_library(file: File) -> bool {
    elf::is_shared_library(&object::ReadCache::new(file))
}

fn judge(path: &std::path::Path) -> std::io::Result<Cause> {
    let file = object::ReadCache::new(File::open(path)?);
    match elf::judge(&file) {
        Cause::Dynamic => Ok(privilege::judge(path)?.unwrap_or(Cause::Dynamic)),
        cause => Ok(cause),
    }
}

#[cfg(test)]
mod tests;
