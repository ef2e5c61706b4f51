//! Who we are.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::raw::syscall;
use crate::{Errno, cancel, kernel};

static SINGLE_THREADED: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

fn small(number: libc::c_long) -> u32 {
    // SAFETY: only called for getpid and gettid, which take no arguments and cannot fail.
    let id = unsafe { syscall(number, [0; 6]) }.unwrap_or(0);
    u32::try_from(id).unwrap_or(0)
}

/// The calling process, asked from the kernel: right in the child of vfork, too.
pub fn pid() -> u32 {
    small(libc::SYS_getpid)
}

/// The calling thread, remembered; [`forget_thread`] must be called in a forked child.
#[inline]
pub fn tid() -> u32 {
    THREAD.with(|cell| match cell.get() {
        0 => {
            let id = small(libc::SYS_gettid);
            cell.set(id);
            id
        }
        id => id,
    })
}

/// Forget the remembered thread, for a forked child.
pub fn forget_thread() {
    THREAD.with(|cell| cell.set(0));
}

/// What tells our pid namespace from others, or 0 where `/proc` does not say.
pub fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// What tells this boot of this kernel from all others, the same in all containers; or 0 where `/proc` does
/// not say.
pub fn boot() -> u64 {
    // No lock, which a child of fork would wait for in vain if another thread had it.
    static BOOT: AtomicU64 = AtomicU64::new(0);
    let known = BOOT.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    let found = u64::from_str_radix(&digits, 16).unwrap_or(0);
    BOOT.store(found, Ordering::Relaxed);
    found
}

/// Whether the process with this id still runs: not gone, and no zombie that waits to be reaped.
pub fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 is not delivered; kill takes numbers only.
    let result = unsafe { syscall(libc::SYS_kill, [pid as usize, 0, 0, 0, 0, 0]) };
    if result == Err(crate::Errno(libc::ESRCH)) {
        return false;
    }
    // The state follows the name, which is in parentheses (proc(5)).
    let path = format!("/proc/{pid}/stat");
    match cancel::never(|| std::fs::read_to_string(path)) {
        Ok(stat) => !matches!(
            stat.rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next()),
            Some('Z' | 'X')
        ),
        Err(_) => true,
    }
}

/// Seconds since the machine has started; the same for all processes of one time namespace.
pub fn uptime_seconds() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0)
}

/// Write `message` to standard error and end the process at once: nothing that the program has
/// registered for its exit is run.
pub fn give_up(message: &str, status: u8) -> ! {
    let args = [2, message.as_ptr().addr(), message.len(), 0, 0, 0];
    // SAFETY: the message is valid for reads of its length.
    let _ = unsafe { syscall(libc::SYS_write, args) };
    loop {
        // SAFETY: takes a number only.
        let _ = unsafe { syscall(libc::SYS_exit_group, [status.into(), 0, 0, 0, 0, 0]) };
    }
}

/// The effective user.
pub fn uid() -> u32 {
    small(libc::SYS_geteuid)
}

/// Close every descriptor from `lowest` on when another program is run; `false` where the kernel
/// cannot do that (before Linux 5.11).
pub fn close_on_exec_from(lowest: u32) -> bool {
    let args = [
        lowest as usize,
        u32::MAX as usize,
        libc::CLOSE_RANGE_CLOEXEC as usize,
        0,
        0,
        0,
    ];
    // SAFETY: numbers only; descriptors stay open until exec.
    unsafe { syscall(libc::SYS_close_range, args) }.is_ok()
}

/// Whether the calling thread is the only one, as far as glibc (2.32 and later) knows. It says so
/// before the first other thread runs.
#[inline]
pub fn is_single_threaded() -> bool {
    let flag = SINGLE_THREADED.load(Ordering::Relaxed);
    // SAFETY: null, or glibc's own variable, which lives as long as the process.
    unsafe { flag.as_ref() }.is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
}

/// Says no.
static NO: AtomicU8 = AtomicU8::new(0);

/// What [`is_alone`] reads; never null.
static ALONE: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const NO).cast_mut());

/// Whether the calling thread is the only one, and none has been cancelled, itself neither.
#[inline]
pub fn is_alone() -> bool {
    let flag = ALONE.load(Ordering::Relaxed);
    // SAFETY: the variable above, or glibc's own, which lives as long as the process.
    unsafe { (*flag).load(Ordering::Relaxed) != 0 }
}

/// A thread is about to be cancelled: [`is_alone`] says no from now on.
pub(crate) fn note_cancelled() {
    ALONE.store((&raw const NO).cast_mut(), Ordering::Relaxed);
}

/// Find what [`is_single_threaded`] reads. Without it, the answer is no.
pub fn resolve() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(found.cast(), Ordering::Relaxed);
    if !found.is_null() && !cancel::is_used() {
        ALONE.store(found.cast(), Ordering::Relaxed);
    }
}

/// As many descriptors as this process may have (RLIMIT_NOFILE).
pub fn most_descriptors() -> usize {
    usize::try_from(descriptor_limit().rlim_cur).unwrap_or(usize::MAX)
}

/// As many as it may allow itself to have.
pub fn most_descriptors_ever() -> usize {
    usize::try_from(descriptor_limit().rlim_max).unwrap_or(usize::MAX)
}

fn descriptor_limit() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is valid for writes.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// How many descriptors the table of this process has room for; the kernel's select looks at no more.
pub fn table_size() -> Option<usize> {
    let mut room = [0; 1024];
    let read = kernel::read_file(c"/proc/self/status", &mut room).ok()?;
    let text = core::str::from_utf8(room.get(..read)?).ok()?;
    let size = text.lines().find_map(|line| line.strip_prefix("FDSize:"))?;
    size.trim().parse().ok()
}

/// Whether of the process's threads only the calling one is left, beside the first, which has ended by pthread_exit(3): the C library
/// ends the process with its last thread.
pub fn is_last_thread() -> bool {
    is_first_thread_gone() && threads() == Some(2)
}

/// The first thread's memory is the process's, and it has none when it has ended.
fn is_first_thread_gone() -> bool {
    let (mut byte, there) = (0_u8, 1_u8);
    let part = |at: *mut u8| libc::iovec {
        iov_base: at.cast(),
        iov_len: 1,
    };
    let (to, from) = (part(&raw mut byte), part((&raw const there).cast_mut()));
    let at = |part: &libc::iovec| core::ptr::from_ref(part).addr();
    let args = [pid() as usize, at(&to), 1, at(&from), 1, 0];
    // SAFETY: both bytes outlive the call.
    let read = unsafe { syscall(libc::SYS_process_vm_readv, args) };
    read == Err(Errno(libc::ESRCH))
}

/// How many threads the process has, those included that have ended and are not waited for yet.
fn threads() -> Option<u32> {
    let mut room = [0; 2048];
    let read = kernel::read_file(c"/proc/self/status", &mut room).ok()?;
    let text = core::str::from_utf8(room.get(..read)?).ok()?;
    let threads = text
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"))?;
    threads.trim().parse().ok()
}
