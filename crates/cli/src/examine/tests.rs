use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::*;

fn cause(path: &Path) -> Cause {
    examine(path.as_os_str()).cause
}

/// Compile an empty program; `None`, loudly, where the compiler cannot do it.
fn compile(directory: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = directory.join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = directory.join(name);
    let done = Command::new("cc")
        .args(flags)
        .arg("-o")
        .args([&program, &source])
        .output()
        .is_ok_and(|output| output.status.success());
    if !done {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: cc {flags:?} does not work here"
        );
    }
    done.then_some(program)
}

#[test]
fn a_dynamic_program_can_be_accelerated() {
    let found = examine("/proc/self/exe".as_ref());
    assert_eq!((found.cause, found.verdict), (Cause::Dynamic, Verdict::Yes));
}

#[test]
fn a_program_is_found_on_the_path() {
    let found = examine("sh".as_ref());
    assert_eq!(found.cause, Cause::Dynamic);
    assert!(found.path.unwrap().is_absolute());
}

#[test]
fn static_programs_cannot_be_accelerated() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [&["-static"][..], &["-static-pie"]] {
        if let Some(program) = compile(directory.path(), "static", flags) {
            assert_eq!(cause(&program), Cause::Static, "{flags:?}");
        }
    }
}

#[test]
fn a_32_bit_program_cannot_be_accelerated() {
    let mut data = std::fs::read("/proc/self/exe").unwrap();
    data[4] = 1;
    assert_eq!(elf::judge(data.as_slice()), Cause::OtherArchitecture);
}

#[test]
fn a_program_for_another_processor_cannot_be_accelerated() {
    let mut data = std::fs::read("/proc/self/exe").unwrap();
    // e_machine of a file that is little-endian, as all that we run on are.
    data[18..20].copy_from_slice(&object::elf::EM_RISCV.to_le_bytes());
    assert_eq!(elf::judge(data.as_slice()), Cause::OtherArchitecture);
}

#[test]
fn a_musl_program_cannot_be_accelerated() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"];
    if let Some(program) = compile(directory.path(), "musl", &flags) {
        assert_eq!(cause(&program), Cause::OtherLibc);
    }
}

#[test]
fn a_go_program_cannot_be_accelerated() {
    let directory = tempfile::tempdir().unwrap();
    let source = "__attribute__((section(\".go.buildinfo\"), used)) static char go[16];";
    std::fs::write(directory.path().join("go.h"), source).unwrap();
    let header = directory.path().join("go.h");
    let flags = ["-include", header.to_str().unwrap()];
    if let Some(program) = compile(directory.path(), "go", &flags) {
        assert_eq!(cause(&program), Cause::Go);
    }
}

#[test]
fn a_setuid_program_of_another_user_cannot_be_accelerated() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::copy("/proc/self/exe", &program).unwrap();
    let mode = |mode| std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o4755);
    assert_eq!(
        cause(&program),
        Cause::Dynamic,
        "its own user gains nothing by it"
    );
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: only root can give files away");
        return;
    }
    chown(&program, Some(12345), Some(12345)).unwrap();
    mode(0o4755);
    assert_eq!(cause(&program), Cause::Setuid);
    mode(0o2755);
    assert_eq!(cause(&program), Cause::Setgid);
    mode(0o755);
    assert_eq!(cause(&program), Cause::Dynamic);
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, "#!/usr/bin/env sh\n").unwrap();
    assert_eq!(cause(&script), Cause::NotExecutable);
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let found = examine(script.as_os_str());
    assert_eq!(found.cause, Cause::Dynamic);
    assert_eq!(found.scripts, [script]);
}

#[test]
fn scripts_that_run_each_other_come_to_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, format!("#!{}\n", script.display())).unwrap();
    let found = examine(script.as_os_str());
    assert_eq!(
        (found.cause, found.verdict),
        (Cause::Unreadable, Verdict::Unknown)
    );
}

#[test]
fn what_is_not_there_is_unknown_and_named() {
    let found = examine("no-such-program-anywhere".as_ref());
    assert_eq!(found.verdict, Verdict::Unknown);
    assert!(found.error.unwrap().contains("no-such-program-anywhere"));
    assert_eq!(cause(Path::new("/")), Cause::Unreadable);
}
