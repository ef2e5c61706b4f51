//! Tables, JSON lines, CSV: the same rows, three ways.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use super::plot::Plot;

/// How to print.
#[derive(clap::Args, Clone, Default)]
pub struct OutputArgs {
    /// One JSON object per line
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Comma-separated values with a header
    #[arg(long)]
    csv: bool,
}

/// Where to draw.
#[derive(clap::Args, Clone, Default)]
pub struct PlotArgs {
    /// Also draw an SVG plot into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl PlotArgs {
    /// Fails if there is nowhere to draw.
    pub fn check(&self) -> anyhow::Result<()> {
        self.svg
            .as_deref()
            .map_or(Ok(()), crate::output::check_writable)
    }

    /// Draws a plot if asked to.
    pub fn draw(&self, plot: impl FnOnce() -> Plot) -> anyhow::Result<()> {
        self.write(|| plot().svg())
    }

    /// Writes an SVG document if asked to.
    pub fn write(&self, svg: impl FnOnce() -> String) -> anyhow::Result<()> {
        self.svg
            .as_ref()
            .map_or(Ok(()), |path| write_file(path, &svg()))
    }
}

/// Writes a file, and names it if that fails.
pub fn write_file(path: &std::path::Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints; a reader that has seen enough (`| head`) is no error.
pub fn emit(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

impl OutputArgs {
    /// Whether neither JSON nor CSV was asked for.
    pub fn is_for_people(&self) -> bool {
        !self.json && !self.csv
    }

    /// Whether JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a document for people to edit, or on one line with `--json`.
    pub fn document(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = if self.json {
            serde_json::to_string(value)?
        } else {
            serde_json::to_string_pretty(value)?
        };
        emit(&format!("{text}\n"))
    }

    /// Prints rows; numbers of the table have the digits that `digits` gives for their column.
    pub fn print<R: Serialize>(
        &self,
        title: &str,
        rows: &[R],
        digits: usize,
    ) -> anyhow::Result<()> {
        let mut text = String::new();
        if self.json {
            for row in rows {
                text.push_str(&serde_json::to_string(row)?);
                text.push('\n');
            }
            return emit(&text);
        }
        let rows = rows
            .iter()
            .map(columns)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let header = rows
            .first()
            .map(|row| row.iter().map(|(name, _)| name.clone()).collect())
            .unwrap_or_default();
        let cells = |cell: &dyn Fn(&Value) -> String| -> Vec<Vec<String>> {
            rows.iter()
                .map(|row| row.iter().map(|(_, value)| cell(value)).collect())
                .collect()
        };
        if self.csv {
            for line in std::iter::once(header).chain(cells(&quoted)) {
                text.push_str(&line.join(","));
                text.push('\n');
            }
            return emit(&text);
        }
        text.push_str(title);
        text.push('\n');
        text.push_str(&table(header, cells(&|value| rounded(value, digits))));
        emit(&text)
    }
}

type Columns = Vec<(String, Value)>;

/// A row's fields in their order; serde_json's own map would sort them.
fn columns<R: Serialize>(row: &R) -> anyhow::Result<Columns> {
    let text = serde_json::to_string(row)?;
    let order: indexed::Object = serde_json::from_str(&text)?;
    Ok(order.0)
}

mod indexed {
    use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
    use serde_json::Value;

    pub struct Object(pub Vec<(String, Value)>);

    impl<'de> Deserialize<'de> for Object {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Fields;
            impl<'de> Visitor<'de> for Fields {
                type Value = Object;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a row")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                    let mut fields = Vec::new();
                    while let Some(field) = map.next_entry()? {
                        fields.push(field);
                    }
                    Ok(Object(fields))
                }
            }
            deserializer.deserialize_map(Fields)
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A CSV field (RFC 4180): quoted where it has to be.
fn quoted(value: &Value) -> String {
    let text = plain(value);
    if text.contains([',', '"', '\n']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

fn rounded(value: &Value, digits: usize) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            let digits = if number.abs() >= 1e5 { 0 } else { digits };
            format!("{number:.digits$}")
        }
        Value::Null => "-".to_owned(),
        other => plain(other),
    }
}

/// Aligns columns to the right, but for the first if it is text.
pub fn table(header: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        lines
            .iter()
            .filter_map(|l| l.get(c))
            .map(|s| s.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, &w)| format!("{cell:>w$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
