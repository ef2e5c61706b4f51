//! Printing that ends quietly when nobody reads on, as in `crosslane ss | head`.

use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, ensure};

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

/// Fail before long work whose result has nowhere to go.
pub fn check_folder_of(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    ensure!(
        folder.as_os_str().is_empty() || folder.is_dir(),
        "cannot write {}: {} is no folder; make it first",
        path.display(),
        folder.display()
    );
    Ok(())
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
        assert!(check_folder_of(Path::new("report.html")).is_ok());
        assert!(check_folder_of(Path::new("/tmp/report.html")).is_ok());
        let refused = check_folder_of(Path::new("/no/such/report.html"));
        assert!(refused.unwrap_err().to_string().contains("/no/such"));
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb"), "a?[2Jb");
    }
}
