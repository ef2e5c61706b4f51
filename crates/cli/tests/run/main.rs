//! The real command: what `crosslane run` does to a program, and to nothing else.

mod explained;
mod other_version;
mod preloaded;
mod sandbox;
mod transparent;

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sandbox::{Sandbox, WATCHDOG, empty_library, err, finish, out, signal_process};

#[test]
fn the_program_gets_its_arguments_and_the_library() {
    let sandbox = Sandbox::new();
    let script = "echo $0 $1 $LD_PRELOAD $CROSSLANE_RUNTIME_DIR $CROSSLANE_WAIT $CROSSLANE_EAGER";
    let output = sandbox.run(&[
        "run", "--wait", "spin", "--eager", "80-82", "--", "sh", "-c", script, "--json", "-x",
    ]);
    let wanted = format!(
        "--json -x {} {} spin 80-82\n",
        sandbox.preload(),
        sandbox.runtime_dir().display()
    );
    assert_eq!(out(&output), wanted, "{}", err(&output));
    assert_eq!(err(&output), "");
}

#[test]
fn it_becomes_the_program() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.crosslane(&["run", "sh", "-c", "echo $$; kill -9 $$"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(out(&output).trim(), pid.to_string());
    assert_eq!(output.status.signal(), Some(9));
    assert_eq!(
        sandbox.run(&["run", "sh", "-c", "exit 42"]).status.code(),
        Some(42)
    );
}

#[test]
fn the_program_has_no_child_that_it_does_not_know() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["run", "sh", "-c", "cat /proc/$$/task/$$/children"]);
    // Only cat itself.
    assert_eq!(
        out(&output).split_whitespace().count(),
        1,
        "{}",
        err(&output)
    );
}

#[test]
fn a_library_that_is_preloaded_already_stays() {
    let sandbox = Sandbox::new();
    let other = sandbox.folder.path().join("other.so");
    empty_library(&other);
    let mut command = sandbox.crosslane(&["run", "sh", "-c", "echo $LD_PRELOAD"]);
    let output = finish(command.env("LD_PRELOAD", &other));
    let wanted = format!("{}:{}\n", sandbox.preload(), other.display());
    assert_eq!(out(&output), wanted);
    let mut nested = sandbox.crosslane(&["run", "sh", "-c", "echo $LD_PRELOAD"]);
    let output = finish(nested.env("LD_PRELOAD", wanted.trim()));
    assert_eq!(out(&output), wanted, "and ours is not preloaded twice");
}

#[test]
fn a_private_monitor_is_started_once_and_serves_the_next_program_too() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "true"]);
    let first = sandbox.monitor_pid().unwrap();
    sandbox.run(&["run", "true"]);
    assert_eq!(sandbox.monitor_pid(), Some(first));
    let mode = sandbox
        .runtime_dir()
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    // Root's programs may become other users, who can pass.
    let wanted = match rustix::process::geteuid().is_root() {
        true => 0o711,
        false => 0o700,
    };
    assert_eq!(mode & 0o777, wanted);
}

#[test]
fn programs_that_start_together_share_one_monitor() {
    let sandbox = Sandbox::new();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let output = sandbox.run(&["run", "true"]);
                assert_eq!(err(&output), "");
            });
        }
    });
    assert!(sandbox.monitor_pid().is_some());
}

#[test]
fn a_monitor_that_was_killed_is_replaced() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "true"]);
    let first = sandbox.monitor_pid().unwrap();
    sandbox.signal_monitor(rustix::process::Signal::KILL);
    let output = sandbox.run(&["run", "--strict", "true"]);
    assert!(output.status.success(), "{}", err(&output));
    assert_ne!(sandbox.monitor_pid(), Some(first));
}

#[test]
fn a_monitor_that_is_told_to_stop_takes_its_socket_along() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "true"]);
    sandbox.signal_monitor(rustix::process::Signal::TERM);
    let end = Instant::now() + WATCHDOG;
    while sandbox.runtime_dir().join("monitor.sock").exists() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_private_monitor_stays_with_its_programs_and_ends_after_them() {
    let sandbox = Sandbox::new();
    let dir = sandbox.runtime_dir();
    let dir = dir.to_str().unwrap();
    let args = [
        "monitor",
        "--private",
        "--linger",
        "1",
        "--runtime-dir",
        dir,
    ];
    let mut monitor = sandbox.crosslane(&args).spawn().unwrap();
    let end = Instant::now() + WATCHDOG;
    while !sandbox.runtime_dir().join("monitor.sock").exists() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut program = sandbox
        .crosslane(&["run", "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // The program has no connection to the monitor: only its life keeps it here.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(monitor.try_wait().unwrap().is_none());
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    let end = Instant::now() + WATCHDOG;
    let status = loop {
        if let Some(status) = monitor.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            monitor.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success());
}

#[test]
fn without_its_library_the_program_runs_on_tcp_after_one_line_of_warning() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.crosslane(&["run", "sh", "-c", "echo ran $LD_PRELOAD"]);
    let output = finish(command.env("CROSSLANE_LIBRARY", "/nowhere/library.so"));
    assert_eq!(out(&output), "ran\n");
    assert_eq!(err(&output).lines().count(), 1);
    assert!(err(&output).contains("/nowhere/library.so"));
    for library in ["/nowhere/library.so", "/etc/passwd"] {
        let mut strict = sandbox.crosslane(&["run", "--strict", "sh", "-c", "echo ran"]);
        let output = finish(strict.env("CROSSLANE_LIBRARY", library));
        assert_eq!(
            (out(&output).as_str(), output.status.code()),
            ("", Some(125))
        );
    }
}

#[test]
fn a_program_that_cannot_be_accelerated_is_left_alone() {
    let sandbox = Sandbox::new();
    let program = sandbox.folder.path().join("static");
    let source = sandbox.folder.path().join("static.c");
    let text = "#include <stdlib.h>\nint main(void) { return getenv(\"LD_PRELOAD\") ? 7 : 0; }\n";
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc")
        .args(["-static", "-o"])
        .args([&program, &source])
        .output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: cc -static does not work here");
        return;
    }
    let program = program.to_str().unwrap();
    let output = sandbox.run(&["run", program]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(err(&output).lines().count(), 1);
    assert!(err(&output).contains("statically linked"));
    let strict = sandbox.run(&["run", "--strict", program]);
    assert_eq!(strict.status.code(), Some(125));
    assert_eq!(sandbox.run(&["check", program]).status.code(), Some(1));
}

#[test]
fn a_directory_that_others_can_write_is_not_used() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.runtime_dir()).unwrap();
    let open = PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(sandbox.runtime_dir(), open).unwrap();
    let output = sandbox.run(&["run", "echo", "ran"]);
    assert_eq!(out(&output), "ran\n");
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    assert!(err(&output).contains("777"));
    assert_eq!(
        sandbox.run(&["run", "--strict", "true"]).status.code(),
        Some(125)
    );
    assert!(sandbox.monitor_pid().is_none());
}

#[test]
fn a_log_that_leads_elsewhere_is_not_written() {
    let sandbox = Sandbox::new();
    let victim = sandbox.folder.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::fs::DirBuilder::new()
        .create(sandbox.runtime_dir())
        .unwrap();
    symlink(&victim, sandbox.runtime_dir().join("monitor.log")).unwrap();
    sandbox.run(&["run", "true"]);
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn what_cannot_be_run_is_told_as_a_shell_does() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["run", "no-such-program-anywhere"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(err(&output).contains("no-such-program-anywhere"));
    assert_eq!(
        sandbox.run(&["run", "/etc/passwd"]).status.code(),
        Some(126)
    );
    assert!(sandbox.run(&["run", "/etc/passwd"]).stdout.is_empty());
}

#[test]
fn a_monitor_that_hangs_is_named() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["run", "true"]).status.success());
    let pid = sandbox.monitor_pid().unwrap();
    signal_process(pid, rustix::process::Signal::STOP);
    let outputs =
        [&["run", "true"][..], &["run", "--strict", "true"]].map(|args| sandbox.run(args));
    signal_process(pid, rustix::process::Signal::CONT);
    let codes = outputs.each_ref().map(|output| output.status.code());
    assert_eq!(codes, [Some(0), Some(125)]);
    for output in &outputs {
        assert!(
            err(output).contains("does not answer; end it"),
            "{}",
            err(output)
        );
    }
}

#[test]
fn why_no_private_monitor_comes_up_is_told() {
    let sandbox = Sandbox::new();
    let log = sandbox.runtime_dir().join("monitor.log");
    std::fs::create_dir_all(&log).unwrap();
    std::fs::set_permissions(sandbox.runtime_dir(), PermissionsExt::from_mode(0o700)).unwrap();
    let output = sandbox.run(&["run", "true"]);
    assert!(output.status.success());
    assert!(
        err(&output).contains("cannot open the log"),
        "{}",
        err(&output)
    );
}

#[test]
fn wrong_words_are_explained() {
    let sandbox = Sandbox::new();
    for args in [
        &["run", "--eager", "99999", "true"][..],
        &["run", "--wait", "never", "true"],
        &["run", "--frobnicate", "true"],
        &["run"],
        &["monitor", "--ring-bytes", "12x"],
        &["monitor", "--linger", "1"],
        &["stats", "--json", "--prometheus"],
        &["frobnicate"],
    ] {
        let output = sandbox.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            err(&output).contains("--help"),
            "{args:?}: {}",
            err(&output)
        );
    }
    for (variable, value) in [("CROSSLANE_WAIT", "never"), ("CROSSLANE_EAGER", "99999")] {
        let mut command = sandbox.crosslane(&["run", "true"]);
        let output = command.env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{variable}");
        assert!(err(&output).contains(value), "{}", err(&output));
    }
    // Runs on every processor, and names what some lack.
    let output = sandbox.run(&["run", "--wait", "monitor", "true"]);
    let has_one = crosslane_sys::store_wait::StoreWait::here().is_some();
    assert!(output.status.success(), "{}", err(&output));
    assert_ne!(has_one, err(&output).contains("neither umwait nor mwaitx"));
    let output = sandbox.run(&["monitor", "--private", "--ring-bytes", "12345"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("power of two"));
}
