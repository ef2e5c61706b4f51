use super::*;

const SOON: Duration = Duration::from_millis(200);
/// Only a hang lasts this long.
const WATCHDOG: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Process {
    Process::spawn("test child", Command::new("sh").args(["-c", script])).expect("sh starts")
}

/// Whether the process exists in a state other than zombie, which is what an orphan may stay for a moment.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn assert_ends(pid: &str) {
    let deadline = Instant::now() + WATCHDOG;
    while is_alive(pid) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn lines_are_read_as_they_come_and_the_rest_at_the_end() {
    let mut child = shell("echo one; echo two; echo three");
    assert_eq!(child.next_line(WATCHDOG).expect("a line"), "one");
    assert_eq!(
        child.finish(WATCHDOG).expect("success").stdout,
        "two\nthree\n"
    );
}

#[test]
fn a_failure_names_the_child_and_quotes_it() {
    let error = shell("echo the reason >&2; exit 3")
        .finish(WATCHDOG)
        .expect_err("exit 3");
    let text = error.to_string();
    assert!(
        text.contains("test child") && text.contains("3") && text.contains("the reason"),
        "{text}"
    );
}

#[test]
fn a_failure_of_a_program_that_complains_on_standard_output_is_quoted_too() {
    let error = shell("echo the reason; exit 6")
        .finish(WATCHDOG)
        .expect_err("exit 6");
    assert!(
        error.to_string().ends_with("it said: the reason"),
        "{error}"
    );
}

#[test]
fn a_hang_becomes_an_error_and_ends_the_grandchildren_too() {
    let mut child = shell("sleep 1000 & echo $!; wait");
    let grandchild = child.next_line(WATCHDOG).expect("its pid");
    assert!(is_alive(&grandchild));
    let error = child.finish(SOON).expect_err("it sleeps");
    assert!(matches!(error, ProcessError::TooLate { .. }), "{error}");
    assert_ends(&grandchild);
}

#[test]
fn dropping_a_child_ends_its_whole_group() {
    let mut child = shell("sleep 1000 & echo $!; wait");
    let grandchild = child.next_line(WATCHDOG).expect("its pid");
    drop(child);
    assert_ends(&grandchild);
}

#[test]
fn a_child_that_ignores_sigterm_is_killed() {
    let mut child = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done");
    child.next_line(WATCHDOG).expect("ready");
    let exit = child.stop().expect("stopped");
    assert!(!exit.status.success());
}

#[test]
fn early_end_of_output_is_a_failure_not_a_wait() {
    let error = shell("echo broken >&2; exit 1")
        .next_line(WATCHDOG)
        .expect_err("no line");
    assert!(matches!(error, ProcessError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("broken"));
}

#[test]
fn a_missing_program_is_named() {
    let error = Process::spawn("ghost", &mut Command::new("/no/such/program"))
        .err()
        .expect("missing");
    assert!(error.to_string().contains("/no/such/program"));
}
