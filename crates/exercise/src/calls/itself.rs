//! What a process does to itself: daemon, chroot, other rights, limits, closing everything.

use std::ffi::CStr;
use std::os::fd::RawFd;

use super::answer_int;
use crate::{Answer, Errno};

unsafe extern "C" {
    /// closefrom(3), which the libc crate lacks.
    #[link_name = "closefrom"]
    fn close_from(lowest: libc::c_int);
}

/// closefrom(3).
pub fn closefrom(lowest: RawFd) {
    // SAFETY: the programs own what they close.
    unsafe { close_from(lowest) };
}

/// daemon(3), to the root folder and without standard streams.
pub fn daemon() -> Answer {
    // SAFETY: takes numbers only; the child calls only what the C library allows after a fork.
    answer_int(unsafe { libc::daemon(0, 0) })
}

/// chdir(2).
pub fn chdir(path: &CStr) -> Answer {
    // SAFETY: the path is a C string.
    answer_int(unsafe { libc::chdir(path.as_ptr()) })
}

/// chroot(2).
pub fn chroot(path: &CStr) -> Answer {
    // SAFETY: the path is a C string.
    answer_int(unsafe { libc::chroot(path.as_ptr()) })
}

/// setgroups(2) to none.
pub fn leave_groups() -> Answer {
    // SAFETY: there is nothing at the pointer to be read.
    answer_int(unsafe { libc::setgroups(0, std::ptr::null()) })
}

/// setgid(2).
pub fn setgid(group: u32) -> Answer {
    // SAFETY: takes a number only.
    answer_int(unsafe { libc::setgid(group) })
}

/// setuid(2).
pub fn setuid(user: u32) -> Answer {
    // SAFETY: takes a number only.
    answer_int(unsafe { libc::setuid(user) })
}

/// unshare(2): into a network namespace of its own.
pub fn unshare_network() -> Answer {
    // SAFETY: takes a number only.
    answer_int(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Have the loopback device of this network namespace work (netdevice(7)).
pub fn raise_loopback() -> Answer {
    let fd = super::socket(libc::AF_INET, 0)?;
    // SAFETY: the request is plain bytes, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l', b'o'].map(|letter| letter as libc::c_char));
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP).expect("flags are of 16 bits");
    // SAFETY: the request reads such a structure, which outlives the call.
    let raised = answer_int(unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw mut request) });
    super::close(fd)?;
    raised
}

/// getrlimit(2): how many descriptors this process may have.
pub fn descriptor_limit() -> Result<u64, Errno> {
    limits().map(|limits| limits.rlim_cur)
}

/// setrlimit(2): how many descriptors this process may have; it may have as many as now again.
pub fn limit_descriptors(most: u64) -> Answer {
    let limits = libc::rlimit {
        rlim_cur: most,
        ..limits()?
    };
    // SAFETY: the limits are readable.
    answer_int(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) })
}

fn limits() -> Result<libc::rlimit, Errno> {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limits are writable.
    answer_int(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) })?;
    Ok(limits)
}

/// fexecve(3) without arguments or environment; returns only if it fails.
pub fn exec_file(fd: RawFd) -> Errno {
    let arguments = [c"program".as_ptr(), std::ptr::null()];
    // SAFETY: the arguments are C strings and end with null, and so does the environment.
    unsafe { libc::fexecve(fd, arguments.as_ptr(), arguments[1..].as_ptr()) };
    Errno::last()
}

/// sched_setaffinity(2): run on the first of the processors that this process may have, and on no other.
pub fn keep_to_one_processor() -> Answer {
    let bytes = size_of::<libc::cpu_set_t>();
    // SAFETY: a set of zeros is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable.
    answer_int(unsafe { libc::sched_getaffinity(0, bytes, &raw mut set) })?;
    let most = usize::try_from(libc::CPU_SETSIZE).expect("it is a small number");
    // SAFETY: the number lies inside the set.
    let first = (0..most).find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    // SAFETY: a set of zeros is an empty one.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number lies inside the set.
    unsafe { libc::CPU_SET(first.expect("it runs somewhere"), &mut one) };
    // SAFETY: the set is readable.
    answer_int(unsafe { libc::sched_setaffinity(0, bytes, &raw const one) })
}
