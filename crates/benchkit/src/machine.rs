//! The machine and the moment, without which a number means nothing.

use std::process::Command;
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What every result file says about where it was made.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// The commit that the running executable was built from, as far as the work tree around it
    /// tells; with `-dirty` when that tree has changes. Absent for an installed program.
    pub commit: Option<String>,
    /// The processor's model name.
    pub cpu: String,
    /// How many CPUs this process may run on.
    pub cores: usize,
    /// Main memory in GiB.
    pub memory_gib: f64,
    /// Kernel name, release and architecture.
    pub kernel: String,
    /// The congestion control that TCP connections get, which is no formality on loopback either.
    pub tcp_congestion_control: String,
    /// The distribution's own name for itself.
    pub os: String,
    /// The command line that produced the results.
    pub command: String,
    /// When they were produced: RFC 3339, UTC.
    pub date: String,
    /// Seconds since then, when this is written: what a bench has taken that tells of its machine first and writes it at
    /// the end. Results from before this was told have none.
    #[serde(default)]
    pub took_s: Took,
}

/// A time that runs until it is read or written, in seconds; of a file, what was written there.
#[derive(Clone, Copy, Debug)]
pub enum Took {
    /// It runs.
    Since(Instant),
    /// It has been read from a file.
    Told(Option<f64>),
}

impl Took {
    /// So far.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        match self {
            Self::Since(start) => Some((start.elapsed().as_secs_f64() * 10.0).round() / 10.0),
            Self::Told(seconds) => *seconds,
        }
    }
}

impl Default for Took {
    fn default() -> Self {
        Self::Told(None)
    }
}

impl Serialize for Took {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.seconds().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Took {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Told)
    }
}

impl Machine {
    /// Describes this machine, now.
    #[must_use]
    pub fn here() -> Self {
        let uname = rustix::system::uname();
        let kernel = [uname.sysname(), uname.release(), uname.machine()];
        Self {
            commit: commit(),
            cpu: field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib(),
            kernel: kernel
                .map(|part| part.to_string_lossy().into_owned())
                .join(" "),
            tcp_congestion_control: congestion_control(),
            os: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_else(|| "unknown".into()),
            command: shell_words::join(std::env::args()),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            took_s: Took::Since(Instant::now()),
        }
    }
}

fn memory_gib() -> f64 {
    let total = field("/proc/meminfo", "MemTotal", ':');
    let kib = total.and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok());
    (kib.unwrap_or(0.0) / f64::from(1 << 20) * 10.0).round() / 10.0
}

fn congestion_control() -> String {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    setting.map_or_else(|_| "unknown".into(), |name| name.trim().to_owned())
}

/// The value of the first line of `path` that has the form `name`, `separator`, value.
fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn commit() -> Option<String> {
    let executable = std::env::current_exe().ok()?;
    let mut describe = Command::new("git");
    describe.current_dir(executable.parent()?);
    describe.args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]);
    let output = describe
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!commit.is_empty()).then_some(commit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_linux_machine_can_name_itself() {
        let machine = Machine::here();
        assert!(machine.cores >= 1);
        assert!(machine.memory_gib > 0.0);
        assert!(machine.kernel.starts_with("Linux "), "{}", machine.kernel);
        assert!(machine.date.ends_with('Z'), "{}", machine.date);
    }
    #[test]
    fn what_was_taken_runs_until_it_is_written_and_stays_what_was_read() {
        let mut machine = Machine::here();
        machine.took_s = Took::Since(Instant::now() - Duration::from_millis(2_340));
        let written = serde_json::to_value(&machine).unwrap();
        assert!(written["took_s"].as_f64() >= Some(2.3), "{written}");
        let mut old = written.clone();
        old["took_s"] = 7.5.into();
        let read = |value: &serde_json::Value| {
            let machine: Machine = serde_json::from_value(value.clone()).unwrap();
            machine.took_s.seconds()
        };
        assert_eq!(read(&old), Some(7.5));
        old.as_object_mut().unwrap().remove("took_s");
        assert_eq!(read(&old), None);
    }
}
