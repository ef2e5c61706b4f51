//! Copies of descriptors: dup and relatives, and passing them to other processes.

use core::ffi::c_int;

use crosslane_ctl::reason::Reason;
use crosslane_stream::{End, adopt, close as closing, control, process, raw, register, standard};
use crosslane_sys::{cancel, process as system, real};
use libc::msghdr;

use crate::process::is_own;
use crate::{borrow, c, epoll, lifecycle, progress, sandbox, sole, stdin, stdio};

/// How long passing a descriptor waits for its connection to be back on TCP.
const PATIENCE: core::time::Duration = core::time::Duration::from_millis(500);

/// `new` is a copy of `fd`.
pub fn copied(fd: c_int, new: c_int) {
    sole::share(fd);
    sole::share(new);
    if process::has_left() {
        return;
    }
    if !is_own() {
        return borrow::copied(fd, new);
    }
    epoll::copied(fd, new);
    match End::of(fd) {
        Some(end) => {
            closing::add_name(&end, new);
            epoll::named(&end.by_name(new));
            leave_to_kernel(&end, new);
            if standard::is(new) {
                stdio::leave(&end);
            }
            if new == libc::STDIN_FILENO {
                stdin::take_over(&end.by_name(new));
            }
        }
        None => register::forget(new),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: passed on.
    let new = unsafe { real::dup(fd) };
    if new >= 0 {
        copied(fd, new);
    }
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd != to {
        make_room(fd, to);
    }
    // SAFETY: passed on.
    let new = unsafe { real::dup2(fd, to) };
    if new >= 0 && fd != to {
        copied(fd, new);
    }
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if fd != to && flags & !libc::O_CLOEXEC == 0 {
        make_room(fd, to);
    }
    // SAFETY: passed on.
    let new = unsafe { real::dup3(fd, to, flags) };
    if new >= 0 {
        copied(fd, new);
    }
    new
}

/// The kernel is about to close `to` silently, provided that `fd` is open and it gives that number at all.
fn make_room(fd: c_int, to: c_int) {
    if process::has_left() {
        return epoll::forget_set(to);
    }
    // SAFETY: numbers only.
    let open = unsafe { real::fcntl(fd, libc::F_GETFD, 0) } >= 0;
    // A number that is open may lie beyond a limit that has been set since.
    let is_given = usize::try_from(to).is_ok_and(|to| to < system::most_descriptors());
    if open && is_given {
        if let Some(end) = End::of(fd).filter(|_| is_own()) {
            leave_to_kernel(&end, to);
        }
        lifecycle::before_close(to);
        if is_own() && control::owns(to) {
            sandbox::leave(Reason::Number);
            control::hand_over(to);
        }
    }
}

/// A call that sleeps in the kernel by a number may be begun again there, after a signal, by what the number is about to
/// name, or names already: that must be plain TCP then.
fn leave_to_kernel(end: &End, number: c_int) {
    if raw::is_in_kernel(number) {
        closing::make_plain(end, Reason::Call, PATIENCE);
    }
}

/// The program passes descriptors over an AF_UNIX socket: whoever receives them sees TCP only, or
/// adopts the end. Who that will be is not known. Returns what is to be taken back if the message
/// is not sent.
pub fn before_passing(message: &msghdr) -> Vec<adopt::Given> {
    let mut given = Vec::new();
    for_each_passed(message, |fd| {
        sole::share(fd);
        epoll::pass(fd);
        if let Some(end) = End::of(fd) {
            let copy = adopt::give_away(&end, Reason::Passed, PATIENCE);
            copy.to_somebody();
            given.push(copy);
            progress::hand_back(&end);
        }
    });
    given
}

/// The program may have received descriptors over an AF_UNIX socket, by a receive with these flags.
pub fn after_receiving(message: &msghdr, flags: c_int) {
    for_each_passed(message, |fd| cancel::never(|| received(fd, flags)));
}

/// A descriptor has come from elsewhere, by a receive with these flags or by none.
pub fn received(fd: c_int, flags: c_int) {
    if process::has_left() {
        return;
    }
    sole::share(fd);
    epoll::received(fd);
    adopt::adopt(fd);
    if let Some(end) = End::of(fd) {
        epoll::named(&end);
        leave_to_kernel(&end, fd);
        if flags & libc::MSG_PEEK != 0 {
            // The message has another copy, for whoever receives it.
            adopt::give_away(&end, Reason::Passed, PATIENCE).to_somebody();
            progress::hand_back(&end);
        }
        if fd == libc::STDIN_FILENO {
            stdin::take_over(&end);
        }
    }
}

/// Each descriptor in a message's control data, up to what the kernel refuses.
fn for_each_passed(message: &msghdr, mut act: impl FnMut(c_int)) {
    let start = message.msg_control.cast::<u8>();
    if !c::may_be(start, message.msg_controllen) {
        return;
    }
    let stop = start.addr() + message.msg_controllen;
    // SAFETY: the program's promise about its message.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null or inside the program's control buffer.
    while let Some(control) = unsafe { header.as_ref() } {
        let room = stop - header.addr();
        if !(size_of::<libc::cmsghdr>()..=room).contains(&control.cmsg_len) {
            return;
        }
        if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
            let bytes = control.cmsg_len - size_of::<libc::cmsghdr>();
            for place in 0..bytes / size_of::<c_int>() {
                // SAFETY: inside the data of this control message.
                act(unsafe { data.add(place).read_unaligned() });
            }
        }
        // SAFETY: the program's promise about its message.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}
