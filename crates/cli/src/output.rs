//! Printing that ends quietly when nobody reads on, as in `crosslane ss | head`.

use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use rustix::fs::{Access, access};

/// Write a whole answer to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    match output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Say something on standard error, which nobody may be reading.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Fail before long work whose result has nowhere to go.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    ensure!(
        folder.is_dir(),
        "cannot write {name}: {} is no folder; make it first",
        folder.display()
    );
    ensure!(
        !path.is_dir(),
        "cannot write {name}: it is a folder; name a file in it"
    );
    let written = if path.exists() { path } else { folder };
    access(written, Access::WRITE_OK).with_context(|| format!("cannot write {name}"))
}

/// Values as JSON, one a line.
pub fn json_lines<T: serde::Serialize>(values: &[T]) -> anyhow::Result<String> {
    let mut text = String::new();
    for value in values {
        text.push_str(&serde_json::to_string(value)?);
        text.push('\n');
    }
    Ok(text)
}

/// A program chooses its name, and might choose one that moves the cursor.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_folder_that_is_not_there_is_refused() {
        assert!(check_writable(Path::new("report.html")).is_ok());
        assert!(check_writable(Path::new("/tmp/report.html")).is_ok());
        let refused = check_writable(Path::new("/no/such/report.html"));
        assert!(refused.unwrap_err().to_string().contains("/no/such"));
    }

    #[test]
    fn a_folder_is_no_file_to_write() {
        let refused = check_writable(Path::new("/tmp")).unwrap_err().to_string();
        assert_eq!(
            refused,
            "cannot write /tmp: it is a folder; name a file in it"
        );
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb"), "a?[2Jb");
    }
}
