//! `crosslane man DIR`: the manual pages, made from the same words as the help texts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// Arguments of `crosslane man`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to write them
    directory: PathBuf,
}

/// Write a page for the command and for each of its subcommands.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut command = crate::description();
    command.build();
    write_pages(&command, &args.directory)
        .with_context(|| format!("cannot write to {}", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: &Command, directory: &Path) -> anyhow::Result<()> {
    let name = name_of(command);
    std::fs::write(directory.join(format!("{name}.1")), page(command)?)?;
    for child in children(command) {
        write_pages(child, directory)?;
    }
    Ok(())
}

/// As in `crosslane-run`.
fn name_of(command: &Command) -> String {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned()
}

fn children(command: &Command) -> impl Iterator<Item = &Command> {
    let is_shown = |child: &&Command| !child.is_hide_set() && child.get_name() != "help";
    command.get_subcommands().filter(is_shown)
}

fn page(command: &Command) -> anyhow::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name_of(command).to_uppercase())
        .date("")
        .source(format!("Crosslane {}", env!("CARGO_PKG_VERSION")))
        .manual("Crosslane");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    description(command).to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut rest = Roff::new();
    commands(&mut rest, command);
    if let Some(text) = command.get_after_long_help() {
        sections(&mut rest, &text.to_string());
    }
    see_also(&mut rest, command);
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// The command with its options and their values.
fn synopsis(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let mut line = vec![bold(name_of(command).replace('-', " "))];
    let shown = |arg: &&Arg| !arg.is_hide_set();
    let mut args: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    args.sort_by_key(|arg| arg.is_positional());
    for arg in args {
        line.push(roman(" "));
        line.extend(usage(arg));
    }
    if children(command).next().is_some() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(line);
    roff
}

/// As in `[--wait HOW]`.
fn usage(arg: &Arg) -> Vec<Inline> {
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    if let (None, [first, others @ ..]) = (arg.get_long(), values.as_slice())
        && !others.is_empty()
    {
        // The first value has a name of its own, and the others may be left out.
        let others = others.join(" ");
        return vec![italic(*first), roman(" ["), italic(others), roman(" ...]")];
    }
    let values = values.join(" ");
    let mut words = match arg.get_long() {
        Some(long) => vec![bold(format!("--{long}"))],
        None => vec![italic(values.clone())],
    };
    if arg.get_long().is_some() && arg.get_action().takes_values() {
        let (before, after) = match arg.is_require_equals_set() {
            true => ("[=", "]"),
            false => (" ", ""),
        };
        words.extend([roman(before), italic(values), roman(after)]);
    }
    let is_repeated = arg
        .get_num_args()
        .is_some_and(|range| range.max_values() > 1);
    if is_repeated {
        words.push(roman(" ..."));
    }
    if !arg.is_required_set() {
        words.insert(0, roman("["));
        words.push(roman("]"));
    }
    words
}

/// What the long help says beyond the line that stands under NAME.
fn description(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let about = command.get_about().map(ToString::to_string);
    let long = command.get_long_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    let long = long.unwrap_or_else(|| about.clone());
    let rest = long.strip_prefix(&about).unwrap_or(&long).trim();
    roff.control("SH", ["DESCRIPTION"]);
    for (at, paragraph) in rest.split("\n\n").enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(if rest.is_empty() { &about } else { paragraph })]);
    }
    roff
}

/// What the subcommands do, each with the name of its page.
fn commands(roff: &mut Roff, command: &Command) {
    if children(command).next().is_none() {
        return;
    }
    roff.control("SH", ["COMMANDS"]);
    for child in children(command) {
        roff.control("TP", []);
        roff.control("BR", [name_of(child).as_str(), "(1)"]);
        let about = child.get_about().map(ToString::to_string);
        roff.text([roman(about.unwrap_or_default())]);
    }
}

/// The text after the options: lines like `Examples:` begin a section, indented lines keep their
/// form, others are paragraphs.
fn sections(roff: &mut Roff, text: &str) {
    let mut in_section = false;
    let mut verbatim = false;
    for line in text.lines() {
        let is_verbatim = line.starts_with(' ') || (verbatim && line.is_empty());
        if verbatim && !is_verbatim {
            roff.control("fi", []);
        }
        if let Some(title) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            roff.control("SH", [title.to_uppercase().as_str()]);
            in_section = true;
        } else {
            if !in_section {
                roff.control("SH", ["NOTES"]);
                in_section = true;
            }
            if is_verbatim && !verbatim {
                roff.control("nf", []);
            }
            match (line.is_empty(), is_verbatim) {
                (true, false) => roff.control("PP", []),
                _ => roff.text([roman(line)]),
            };
        }
        verbatim = is_verbatim;
    }
    if verbatim {
        roff.control("fi", []);
    }
}

/// The page above, or the other pages of this level.
fn see_also(roff: &mut Roff, command: &Command) {
    let name = name_of(command);
    let Some((parent, _)) = name.rsplit_once('-') else {
        return;
    };
    roff.control("SH", ["SEE ALSO"]);
    roff.control("BR", [parent, "(1)"]);
}
