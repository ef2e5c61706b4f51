//! Keeps Debian from starting services of the packages that are being installed, by the file that invoke-rc.d asks.
//!
//! The file must not outlive the installation: with it the machine would start no service of any package. So a shell
//! makes and removes it, which is there still when this program is ended from the keyboard, by a signal or by its own
//! handler of one; and what a killed shell leaves behind says yes to everything, and is removed by the next setup.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The file that invoke-rc.d asks whether it may start something.
pub const POLICY: &str = "/usr/sbin/policy-rc.d";

/// By this a later setup knows the file; the number of the shell that has made it stands behind.
const MARK: &str =
    "# Made by Crosslane's setup, which removes it when packages are installed; process ";

/// `$1` is the file, `$2` the mark, and the rest a command. Somebody else's file stays, and is obeyed by Debian.
const SCRIPT: &str = r#"
policy=$1 mark=$2
shift 2
is_ours() { grep -qF "$mark" "$policy" 2>/dev/null; }
if [ ! -e "$policy" ] || is_ours; then
  new=$policy.$$
  trap 'rm -f "$new"; if grep -qxF "$mark$$" "$policy" 2>/dev/null; then rm -f "$policy"; fi' EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  printf '#!/bin/sh\n%s%s\n[ -d /proc/%s ] || exit 0\nexit 101\n' "$mark" $$ $$ >"$new"
  chmod 755 "$new"
  mv "$new" "$policy"
fi
"$@"
"#;

/// A command during which Debian starts no service.
pub fn quietly(policy: &Path, words: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, "sh"]);
    shell.args([policy.as_os_str(), OsStr::new(MARK)]);
    shell.args(words);
    shell
}

/// Removes what a setup that was killed has left.
pub fn tidy_up(policy: &Path) -> std::io::Result<()> {
    let Ok(text) = fs::read_to_string(policy) else {
        return Ok(());
    };
    let maker = text.lines().find_map(|line| line.strip_prefix(MARK));
    match maker {
        Some(shell) if !is_shell(shell) => fs::remove_file(policy),
        _ => Ok(()),
    }
}

/// Whether this process is a shell: another program may have got the number since.
fn is_shell(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Child, Stdio};

    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    use tempfile::TempDir;

    use super::*;

    fn place() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy-rc.d");
        (folder, policy)
    }

    /// Something that installs for a long time, in a process group of its own, as at a terminal.
    fn begin(policy: &Path) -> (Child, Pid) {
        let shell = quietly(policy, &["sh", "-c", "echo begun; exec sleep 60"]);
        // A shell cannot heed what has been ignored when it began.
        let mut heeding = Command::new("env");
        heeding.arg("--default-signal=HUP,INT,TERM");
        heeding.arg(shell.get_program()).args(shell.get_args());
        let mut child = heeding
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        (child, pid)
    }

    /// What invoke-rc.d is told.
    fn answer(policy: &Path) -> Option<i32> {
        Command::new(policy).status().unwrap().code()
    }

    fn names_in(folder: &TempDir) -> usize {
        fs::read_dir(folder.path()).unwrap().count()
    }

    #[test]
    fn services_are_refused_while_the_command_runs_and_no_longer() {
        let (folder, policy) = place();
        let asks = format!("{}; echo $?; exit 3", policy.display());
        let output = quietly(&policy, &["sh", "-c", &asks]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "101\n");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(names_in(&folder), 0);
    }

    #[test]
    fn a_setup_that_is_interrupted_leaves_nothing_behind() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let (folder, policy) = place();
            let (mut child, group) = begin(&policy);
            assert_eq!(answer(&policy), Some(101));
            kill_process_group(group, signal).unwrap();
            assert!(!child.wait().unwrap().success());
            assert_eq!(names_in(&folder), 0, "{signal:?}");
        }
    }

    #[test]
    fn what_a_killed_setup_leaves_lets_services_start_and_is_removed_by_the_next() {
        let (folder, policy) = place();
        let (mut child, shell) = begin(&policy);
        tidy_up(&policy).unwrap();
        assert!(policy.exists(), "it is in use");
        kill_process_group(shell, Signal::KILL).unwrap();
        child.wait().unwrap();
        assert_eq!(answer(&policy), Some(0));
        tidy_up(&policy).unwrap();
        assert_eq!(names_in(&folder), 0);
    }

    #[test]
    fn a_setup_takes_over_what_a_killed_one_has_left() {
        let (folder, policy) = place();
        let (mut child, shell) = begin(&policy);
        kill_process_group(shell, Signal::KILL).unwrap();
        child.wait().unwrap();
        let asks = format!("{}; exit $?", policy.display());
        let status = quietly(&policy, &["sh", "-c", &asks]).status().unwrap();
        assert_eq!(status.code(), Some(101));
        assert_eq!(names_in(&folder), 0);
    }

    #[test]
    fn a_setup_beside_it_keeps_the_file() {
        let (folder, policy) = place();
        let (mut first, first_shell) = begin(&policy);
        let (mut second, second_shell) = begin(&policy);
        kill_process_group(first_shell, Signal::TERM).unwrap();
        first.wait().unwrap();
        assert_eq!(answer(&policy), Some(101));
        kill_process_group(second_shell, Signal::TERM).unwrap();
        second.wait().unwrap();
        assert_eq!(names_in(&folder), 0);
    }

    #[test]
    fn somebody_elses_file_stays_as_it_is() {
        let (folder, policy) = place();
        let theirs = "#!/bin/sh\nexit 101\n";
        fs::write(&policy, theirs).unwrap();
        assert!(quietly(&policy, &["true"]).status().unwrap().success());
        tidy_up(&policy).unwrap();
        assert_eq!(fs::read_to_string(&policy).unwrap(), theirs);
        assert_eq!(names_in(&folder), 1);
    }

    #[test]
    fn a_process_that_has_the_number_since_is_no_setup() {
        let (folder, policy) = place();
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(&policy, format!("#!/bin/sh\n{MARK}{}\n", other.id())).unwrap();
        tidy_up(&policy).unwrap();
        let pid = Pid::from_raw(other.id().cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        other.wait().unwrap();
        assert_eq!(names_in(&folder), 0);
    }
}
