//! Children that are not of our kind, or many.

use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::process::{Command, Stdio};

use crosslane_exercise::calls::{
    SpawnActions, close, dup2, dup3, exec_file, fcntl, file_of, pipe, read, recv, wait_for,
};
use libc::{F_SETFD, FD_CLOEXEC, O_CLOEXEC};

use super::processes::{in_child, listen};
use super::{Check, pair};
use crate::Stage;
use crate::stage::{digest, drain, limit_to_seconds, pattern, says, take};

/// At once.
const CHILDREN: usize = 40;
const LINE_BYTES: usize = 500;
const WORD_BYTES: usize = 16;

/// A program without libraries, which copies a line from its input to its output:
///
/// ```text
/// 1: xor eax, eax; xor edi, edi; lea rsi, [rsp - 8]; mov edx, 1; syscall    read(0, byte, 1)
///    dec eax; jnz 2f
///    mov eax, 1; mov edi, 1; syscall; dec eax; jnz 2f                       write(1, byte, 1)
///    cmp byte ptr [rsp - 8], '\n'; jne 1b; xor edi, edi; jmp 3f
/// 2: mov edi, 1
/// 3: mov eax, 60; syscall                                                   exit
/// ```
#[cfg(target_arch = "x86_64")]
const COPIES_A_LINE: &[u8] = b"\x31\xc0\x31\xff\x48\x8d\x74\x24\xf8\xba\x01\0\0\0\x0f\x05\
    \xff\xc8\x75\x1b\xb8\x01\0\0\0\xbf\x01\0\0\0\x0f\x05\xff\xc8\x75\x0b\x80\x7c\x24\xf8\x0a\
    \x75\xd5\x31\xff\xeb\x05\xbf\x01\0\0\0\xb8\x3c\0\0\0\x0f\x05";

/// A program for another machine: it cannot be started.
#[cfg(not(target_arch = "x86_64"))]
const COPIES_A_LINE: &[u8] = b"";

/// A file with that program, linked to nothing.
fn static_program() -> i32 {
    const AT: u64 = 0x0040_0000;
    const HEADERS: u64 = 64 + 56;
    let length = HEADERS + COPIES_A_LINE.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    let words = |file: &mut Vec<u8>, words: &[u64]| {
        words
            .iter()
            .for_each(|word| file.extend(word.to_le_bytes()));
    };
    // It starts behind the headers; one program header, no section.
    words(&mut file, &[AT + HEADERS, 64, 0]);
    file.extend(b"\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0");
    // To be loaded as a whole, readable and executable.
    words(&mut file, &[1 | 5 << 32, 0, AT, AT, length, length, 0x1000]);
    file.extend(COPIES_A_LINE);
    file_of(&file).expect("a file can be made in memory")
}

fn execed(fd: i32) -> bool {
    let child = in_child(|| {
        let program = static_program();
        dup2(fd, 0).expect("standard input can be replaced");
        dup2(fd, 1).expect("standard output can be replaced");
        exec_file(program);
        false
    });
    wait_for(child) == Ok(0)
}

fn spawned(fd: i32) -> bool {
    let twin = || {
        // SAFETY: the stage's connection stays open while it is cloned.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        Stdio::from(borrowed.try_clone_to_owned().expect("a descriptor is free"))
    };
    let program = static_program();
    let status = Command::new(format!("/proc/self/fd/{program}"))
        .stdin(twin())
        .stdout(twin())
        .status();
    close(program).expect("it is open");
    status.is_ok_and(|status| status.success())
}

/// As [`spawned`], by actions that were made before their number named the connection.
fn spawned_by_old_actions(fd: i32) -> bool {
    const NUMBER: i32 = 99;
    let mut actions = SpawnActions::default();
    actions.copy(NUMBER, 0);
    actions.copy(NUMBER, 1);
    dup3(fd, NUMBER, O_CLOEXEC).expect("a copy can be made");
    let program = static_program();
    let path = CString::new(format!("/proc/self/fd/{program}")).expect("it has no null");
    let child = actions.spawn(&path);
    close(program).expect("it is open");
    close(NUMBER).expect("it is open");
    child.and_then(wait_for) == Ok(0)
}

/// Near: write, have a static program answer, and go on; twice.
fn answer_by(s: &mut Stage, program: fn(i32) -> bool) {
    for _ in 0..2 {
        s.send(b"before\n");
        s.say("program", program(s.fd));
        s.send(b"after\n");
        s.read_exactly(b"rest\n".len());
    }
    s.say("close", close(s.fd));
}

/// Far: two lines for a static program and who started it, twice.
fn two_lines_twice(s: &mut Stage) {
    for _ in 0..2 {
        s.send(b"through\nrest\n");
        s.read_exactly(b"before\nthrough\nafter\n".len());
    }
    listen(s);
}

/// Make children that wait for each other, and run `child` with their number. How many did well.
fn at_once(child: impl Fn(usize) -> bool) -> usize {
    let [gate, opener] = pipe().expect("a pipe can be made");
    let children: Vec<_> = (0..CHILDREN)
        .map(|number| {
            in_child(|| {
                limit_to_seconds(10);
                close(opener).is_ok() && read(gate, &mut [0]) == Ok(0) && child(number)
            })
        })
        .collect();
    close(opener).expect("it is open");
    let did_well = |pid: &libc::pid_t| wait_for(*pid) == Ok(0);
    let count = children.into_iter().filter(did_well).count();
    close(gate).expect("it is open");
    count
}

/// What is of `size` and the same in every byte but the last, which ends it.
fn line(number: usize, size: usize) -> Vec<u8> {
    let letter = u8::try_from(number).expect("there are few") + b'0';
    let mut line = vec![letter; size];
    line[size - 1] = b'\n';
    line
}

/// The pieces in order, whoever came first.
fn sorted(bytes: &[u8], size: usize) -> String {
    let mut pieces: Vec<&[u8]> = bytes.chunks(size).collect();
    pieces.sort_unstable();
    digest(&pieces.concat())
}

pub const CHECKS: &[Check] = &[
    pair(
        "a_static_program_is_executed",
        |s| answer_by(s, execed),
        two_lines_twice,
    ),
    pair(
        "a_static_program_is_spawned_by_old_actions",
        |s| {
            fcntl(s.fd, F_SETFD, FD_CLOEXEC).expect("a flag can be set");
            answer_by(s, spawned_by_old_actions);
        },
        two_lines_twice,
    ),
    pair(
        "a_static_program_is_spawned",
        |s| answer_by(s, spawned),
        two_lines_twice,
    ),
    pair(
        "many_children_write_at_once",
        |s| {
            let fd = s.fd;
            s.say(
                "children",
                at_once(|number| says(fd, &line(number, LINE_BYTES))),
            );
            s.send(b"and on");
            s.say("close", close(fd));
        },
        |s| {
            let lines = take(s.fd, CHILDREN * LINE_BYTES);
            s.say("lines", lines.map(|bytes| sorted(&bytes, LINE_BYTES)));
            listen(s);
        },
    ),
    pair(
        "many_children_read_at_once",
        |s| {
            let fd = s.fd;
            let [words, teller] = pipe().expect("a pipe can be made");
            s.go();
            let count = at_once(|_| {
                let mut word = [0; WORD_BYTES];
                recv(fd, &mut word, 0) == Ok(WORD_BYTES)
                    && crosslane_exercise::calls::write(teller, &word) == Ok(WORD_BYTES)
            });
            s.say("children", count);
            close(teller).expect("it is open");
            s.say(
                "words",
                drain(words).map(|bytes| sorted(&bytes, WORD_BYTES)),
            );
            s.read(100);
            s.send(&pattern(1000));
            s.say("close", close(fd));
        },
        |s| {
            s.wait();
            for number in 0..CHILDREN {
                s.send(&line(number, WORD_BYTES));
            }
            s.send(b"and on");
            listen(s);
        },
    ),
];
