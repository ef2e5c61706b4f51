//! `crosslane rack init`.

use std::path::Path;

use anyhow::{Context, bail};
use crosslane_monitor::rack::config::{NAME_BYTES, RackConfig};
use crosslane_monitor::rack::identity::{Identity, write_new};

use super::Place;
use crate::output;

/// Arguments of `crosslane rack init`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,

    /// This host's name in the rack; by default its host name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Where other hosts' monitors connect
    #[arg(long, value_name = "IP[:PORT]", default_value = "0.0.0.0:7411")]
    listen: String,
}

/// Make the files, none of which may be there, and print the fingerprint.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let path = std::path::absolute(&args.place.rack)?;
    let name = args.name.clone().map_or_else(host_name, Ok)?;
    let text = configuration(&name, &args.listen);
    // What it says is checked before anything is written.
    let config = RackConfig::parse(&path, &text)?;
    refuse_a_second(&path, &config)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    write_new(&path, 0o644, &text)?;
    let fingerprint = Identity::create(&name, &config.certificate, &config.key)?;
    output::print(&format!(
        "This host is {name} in {}.\nIts fingerprint, for `crosslane rack add {name}` on other \
         hosts:\n{fingerprint}\n",
        path.display()
    ))
}

/// Another key would lock this host out of the rack that it is in.
fn refuse_a_second(path: &Path, config: &RackConfig) -> anyhow::Result<()> {
    let files = [path, &config.certificate, &config.key];
    let there = files.iter().filter(|file| file.exists());
    let there: Vec<_> = there.map(|file| file.display().to_string()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let known = RackConfig::read(path).ok().and_then(|known| {
        let identity = Identity::read(&known.certificate, &known.key).ok()?;
        Some((known.name, identity.fingerprint()))
    });
    let what = match known {
        Some((name, print)) => format!("this host is {name} already, {print}"),
        None => "something is there already".to_owned(),
    };
    bail!(
        "{what}; to begin anew, with another key, remove {}",
        there.join(" and ")
    )
}

fn host_name() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.context("this host's name cannot be read; give one with --name")?;
    Ok(name.trim().chars().take(NAME_BYTES).collect())
}

fn configuration(name: &str, listen: &str) -> String {
    let uid = rustix::process::geteuid().as_raw();
    format!(
        r#"# This host and its rack; `crosslane monitor --rack THIS-FILE` reads it when it starts, and at
# `crosslane rack reload`.
# All hosts know each other by key: `crosslane rack init` prints a host's fingerprint, and
# `crosslane rack add` enters it here.

# This host, as the others call it in their files.
name = "{name}"

# Where the monitors of other hosts connect. Of two hosts, the one whose name sorts first connects.
listen = "{listen}"

# Connections over windows that one user may have.
# connections_per_user = 4096

# Who may use windows: an entry lets those in who fit all that it names. Without entries, nobody.
# Whoever is let in can read and write all of a window: name only whom you trust with the data of
# all others here.
[[allow]]
users = [{uid}]
# programs = ["redis-server"]
# ports = [6379, "8000-8099"]
# hosts = ["other"]

# Other hosts:
# [[host]]
# name = "other"
# address = "10.0.0.2:7411"
# addresses = ["10.0.0.2"]        # where its programs are; by default the address above
# fingerprint = "sha256:..."

# Windows to them; both hosts name the same memory by the same name:
# [[window]]
# name = "lanes"
# kind = "file"                   # a file in tmpfs that two hosts on one machine share; or "bar" (ivshmem), "dax"
# path = "/dev/shm/crosslane-lanes"
# bytes = 268435456
# ring_bytes = 131072             # of each ring; the word of the host whose name sorts first counts
# slots = 16                      # connections in each arena, of one pair of processes
# host = "other"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_configuration() {
        let path = Path::new("/etc/crosslane/rack.toml");
        let config = RackConfig::parse(path, &configuration("alpha", "0.0.0.0:7411")).unwrap();
        assert_eq!(config.name, "alpha");
        assert_eq!(config.allow.len(), 1);
        let bare = configuration("alpha", "[::1]:1");
        let uncommented: String = bare
            .lines()
            .map(|line| {
                let is_key = |rest: &&str| rest.starts_with("[[") || rest.contains(" = ");
                let rest = line.strip_prefix("# ").filter(is_key);
                format!("{}\n", rest.unwrap_or(line))
            })
            .collect();
        let print = format!("sha256:{}", "0".repeat(64));
        let whole = uncommented.replace("sha256:...", &print).replacen(
            "connections_per_user",
            "# connections_per_user",
            1,
        );
        RackConfig::parse(path, &whole).expect("what the comments show is right, too");
    }
}
