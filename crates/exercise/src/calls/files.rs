//! Descriptors and processes: close, dup, pipe, fork and what belongs to them.

use std::ffi::CStr;
use std::os::fd::RawFd;

use super::{answer_fd, answer_int};
use crate::{Answer, Errno};

/// close(2).
pub fn close(fd: RawFd) -> Answer {
    // SAFETY: the programs own what they close.
    answer_int(unsafe { libc::close(fd) })
}

/// close_range(2).
pub fn close_range(first: u32, last: u32, flags: u32) -> Answer {
    let flags = i32::try_from(flags).expect("flags are small");
    // SAFETY: the programs own what they close.
    answer_int(unsafe { libc::close_range(first, last, flags) })
}

/// dup(2).
pub fn dup(fd: RawFd) -> Result<RawFd, Errno> {
    // SAFETY: no memory is passed.
    answer_fd(unsafe { libc::dup(fd) })
}

/// dup2(2).
pub fn dup2(fd: RawFd, onto: RawFd) -> Result<RawFd, Errno> {
    // SAFETY: the programs own what they replace.
    answer_fd(unsafe { libc::dup2(fd, onto) })
}

/// dup3(2).
pub fn dup3(fd: RawFd, onto: RawFd, flags: i32) -> Result<RawFd, Errno> {
    // SAFETY: the programs own what they replace.
    answer_fd(unsafe { libc::dup3(fd, onto, flags) })
}

/// pipe(2): the reading and the writing end.
pub fn pipe() -> Result<[RawFd; 2], Errno> {
    let mut ends = [-1; 2];
    // SAFETY: there is room for two descriptors.
    answer_int(unsafe { libc::pipe(ends.as_mut_ptr()) })?;
    Ok(ends)
}

/// memfd_create(2) with these bytes in it and its offset at the start.
pub fn file_of(bytes: &[u8]) -> Result<RawFd, Errno> {
    // SAFETY: the name is a C string.
    let fd = answer_fd(unsafe { libc::memfd_create(c"bytes".as_ptr(), libc::MFD_CLOEXEC) })?;
    super::write(fd, bytes)?;
    // SAFETY: no memory is passed.
    let start = unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
    assert_eq!(start, 0, "a file in memory can be rewound");
    Ok(fd)
}

/// A file without a name in the folder for temporary ones, with these bytes in it and its offset at
/// the start. Unlike [`file_of`]'s, such files can be read without waiting for a disk (RWF_NOWAIT).
pub fn disk_file_of(bytes: &[u8]) -> Result<RawFd, Errno> {
    let path = std::ffi::CString::new(std::env::temp_dir().into_os_string().into_encoded_bytes())
        .expect("the name of a folder has no zero in it");
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path is a C string.
    let fd = answer_fd(unsafe { libc::open(path.as_ptr(), flags, 0o600) })?;
    super::write(fd, bytes)?;
    // SAFETY: no memory is passed.
    let start = unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
    assert_eq!(start, 0, "a file can be rewound");
    Ok(fd)
}

/// open(2) of something that exists.
pub fn open(path: &CStr, flags: i32) -> Result<RawFd, Errno> {
    // SAFETY: the path is a C string.
    answer_fd(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// ftruncate(2).
pub fn truncate(fd: RawFd, bytes: i64) -> Answer {
    // SAFETY: no memory is passed.
    answer_int(unsafe { libc::ftruncate(fd, bytes) })
}

/// lseek(2) to see whether it works.
pub fn seek(fd: RawFd) -> Answer {
    // SAFETY: no memory is passed.
    let offset = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    super::answer(isize::try_from(offset).expect("an offset is as long as a pointer"))
}

/// fstat(2): the type of the file, as S_IFSOCK.
pub fn file_type(fd: RawFd) -> Result<u32, Errno> {
    // SAFETY: a stat of zeros is an empty one.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the stat is writable.
    answer_int(unsafe { libc::fstat(fd, &raw mut stat) })?;
    Ok(stat.st_mode & libc::S_IFMT)
}

/// A copy of a descriptor of this process, by pidfd_open(2) and pidfd_getfd(2).
pub fn take_own(fd: RawFd) -> Result<RawFd, Errno> {
    take_from(std::process::id().cast_signed(), fd)
}

/// A copy of a descriptor of another process, by the same calls.
pub fn take_from(pid: libc::pid_t, fd: RawFd) -> Result<RawFd, Errno> {
    let call = |number, a: RawFd, b: RawFd| {
        let (a, b, none) = (i64::from(a), i64::from(b), 0_i64);
        // SAFETY: numbers only.
        let made = unsafe { libc::syscall(number, a, b, none) };
        answer_fd(RawFd::try_from(made).expect("descriptors are small"))
    };
    let process = call(libc::SYS_pidfd_open, pid, 0)?;
    let taken = call(libc::SYS_pidfd_getfd, process, fd);
    close(process).expect("it is open");
    taken
}

/// _Fork(3), of which no handler is told: None in the child.
pub fn fork_unseen() -> Result<Option<libc::pid_t>, Errno> {
    unsafe extern "C" {
        fn _Fork() -> libc::pid_t;
    }
    // SAFETY: as in `fork`.
    let pid = answer_fd(unsafe { _Fork() })?;
    Ok((pid > 0).then_some(pid))
}

/// fork(2): None in the child.
pub fn fork() -> Result<Option<libc::pid_t>, Errno> {
    // SAFETY: the child of these programs calls only what the C library allows after a fork.
    let pid = answer_fd(unsafe { libc::fork() })?;
    Ok((pid > 0).then_some(pid))
}

/// fork(2) as a program makes it that goes around libc's function: None in the child.
pub fn fork_by_number() -> Result<Option<libc::pid_t>, Errno> {
    let nothing: libc::c_long = 0;
    // SAFETY: as in `fork`; the child has a copy of this stack.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::SIGCHLD,
            nothing,
            nothing,
            nothing,
            nothing,
        )
    };
    forked(pid)
}

/// The same by clone3(2).
pub fn fork_by_clone3() -> Result<Option<libc::pid_t>, Errno> {
    let mut arguments = [0_u64; 8];
    arguments[4] = 17; // exit_signal: SIGCHLD
    // SAFETY: as in `fork_by_number`.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut arguments,
            size_of_val(&arguments),
        )
    };
    forked(pid)
}

fn forked(pid: libc::c_long) -> Result<Option<libc::pid_t>, Errno> {
    match libc::pid_t::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid @ 1..) => Ok(Some(pid)),
        _ => Err(Errno::last()),
    }
}

/// clone(2) by libc's function, without memory in common: the child runs `child`, which says how it exits.
pub fn clone_child(
    child: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: i32,
) -> Result<libc::pid_t, Errno> {
    const STACK: usize = 256 << 10;
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let (mut argument, top) = (argument, stack.as_mut_ptr_range().end);
    // SAFETY: the child has copies of the stack and of the argument.
    let pid = unsafe { libc::clone(child, top.cast(), libc::SIGCHLD, (&raw mut argument).cast()) };
    match pid {
        1.. => Ok(pid),
        _ => Err(Errno::last()),
    }
}

/// _exit(2).
pub fn exit_now(status: i32) -> ! {
    // SAFETY: nothing that matters is left undone in a child.
    unsafe { libc::_exit(status) }
}

/// Have this process killed.
pub fn kill_self() {
    // SAFETY: no memory is passed.
    unsafe { libc::raise(libc::SIGKILL) };
}

/// The system call `exit`, which ends the calling thread and is allowed after [`restrict_calls`].
pub fn exit_thread(status: i32) -> ! {
    // SAFETY: takes a number only; nothing that matters is left undone in a child.
    unsafe { libc::syscall(libc::SYS_exit, status) };
    unreachable!("the thread has ended")
}

/// prctl(2), SECCOMP_MODE_STRICT: only read, write, exit and returning from signals are left.
pub fn restrict_calls() -> Result<(), Errno> {
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_STRICT);
    // SAFETY: takes numbers only.
    answer_int(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode) }).map(drop)
}

/// waitpid(2): the exit status, or 128 and the signal.
pub fn wait_for(pid: libc::pid_t) -> Result<i32, Errno> {
    let mut status = 0;
    // SAFETY: the status is writable.
    answer_int(unsafe { libc::waitpid(pid, &raw mut status, 0) })?;
    Ok(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    })
}

/// execv(3) of a shell script; returns only when it failed.
pub fn exec_shell(script: &CStr) -> Errno {
    let arguments = [
        c"sh".as_ptr(),
        c"-c".as_ptr(),
        script.as_ptr(),
        std::ptr::null(),
    ];
    // SAFETY: the arguments are C strings and end with null.
    unsafe { libc::execv(c"/bin/sh".as_ptr(), arguments.as_ptr()) };
    Errno::last()
}

/// execl(3) of a shell that runs `script` with the arguments 1 to 10; returns only if it fails.
pub fn exec_shell_by_list(script: &CStr) -> Errno {
    let end = std::ptr::null::<libc::c_char>();
    // SAFETY: the arguments are C strings and end with null.
    unsafe {
        libc::execl(
            c"/bin/sh".as_ptr(),
            c"sh".as_ptr(),
            c"-c".as_ptr(),
            script.as_ptr(),
            c"sh".as_ptr(),
            c"1".as_ptr(),
            c"2".as_ptr(),
            c"3".as_ptr(),
            c"4".as_ptr(),
            c"5".as_ptr(),
            c"6".as_ptr(),
            c"7".as_ptr(),
            c"8".as_ptr(),
            c"9".as_ptr(),
            c"10".as_ptr(),
            end,
        )
    };
    Errno::last()
}

/// execle(3) of a shell that runs `script` in this environment of one variable.
pub fn exec_shell_in(script: &CStr, variable: &CStr) -> Errno {
    let end = std::ptr::null::<libc::c_char>();
    let environment = [variable.as_ptr(), end];
    // SAFETY: the arguments are C strings and end with null, and so does the environment.
    unsafe {
        libc::execle(
            c"/bin/sh".as_ptr(),
            c"sh".as_ptr(),
            c"-c".as_ptr(),
            script.as_ptr(),
            end,
            environment.as_ptr(),
        )
    };
    Errno::last()
}

/// execlp(3) of what does not exist.
pub fn exec_missing_by_list() -> Errno {
    let end = std::ptr::null::<libc::c_char>();
    // SAFETY: the arguments are C strings and end with null.
    unsafe { libc::execlp(c"nonexistent-missing".as_ptr(), c"missing".as_ptr(), end) };
    Errno::last()
}

/// kill(2).
pub fn kill(pid: libc::pid_t, signal: i32) -> Answer {
    // SAFETY: the programs only signal what they started.
    answer_int(unsafe { libc::kill(pid, signal) })
}

/// gettid(2).
pub fn thread_id() -> i32 {
    // SAFETY: gettid touches no memory.
    unsafe { libc::gettid() }
}

/// execv(3) of a program that does not exist.
pub fn exec_missing() -> Errno {
    let arguments = [c"missing".as_ptr(), std::ptr::null()];
    // SAFETY: the arguments are C strings and end with null.
    unsafe { libc::execv(c"/nonexistent/missing".as_ptr(), arguments.as_ptr()) };
    Errno::last()
}

fn shell_status(status: i32) -> Answer {
    match status {
        -1 => Err(Errno::last()),
        _ => answer_int(libc::WEXITSTATUS(status)),
    }
}

/// system(3). The shell's exit status.
pub fn system(command: &CStr) -> Answer {
    // SAFETY: a C string.
    let status = unsafe { libc::system(command.as_ptr()) };
    shell_status(status)
}

/// popen(3) for writing and pclose(3): the shell reads `input`. Its exit status.
pub fn pipe_to(command: &CStr, input: &[u8]) -> Answer {
    // SAFETY: C strings.
    let stream = unsafe { libc::popen(command.as_ptr(), c"w".as_ptr()) };
    if stream.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: the stream is open and the bytes are valid.
    unsafe { libc::fwrite(input.as_ptr().cast(), 1, input.len(), stream) };
    // SAFETY: the stream is open and not used again.
    let status = unsafe { libc::pclose(stream) };
    shell_status(status)
}
