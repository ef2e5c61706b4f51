//! Other names under which glibc exports the functions of this library, and asynchronous I/O, whose
//! threads inside libc go around it.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crosslane_sys::real;
use libc::{
    FILE, aiocb, c_long, fd_set, iovec, mmsghdr, nfds_t, off_t, pid_t, pollfd, sigaction, sigevent,
    sighandler_t, size_t, sockaddr, socklen_t, ssize_t, timeval,
};

use crate::{
    bulk, exec, input, lifecycle, options, output, plumbing, poll, process, select, signals, stdio,
};

macro_rules! alias {
    ($($name:ident is $module:ident::$function:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                // SAFETY: passed on.
                unsafe { $module::$function($($arg),*) }
            }
        )*
    };
}

alias! {
    __read is input::read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    __recv is input::recv(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t;
    __write is output::write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t;
    __send is output::send(fd: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t;
    __sendmmsg is output::sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    preadv64v2 is input::preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    pwritev64v2 is output::pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    _IO_fdopen is stdio::fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    _IO_fclose is stdio::fclose(stream: *mut FILE) -> c_int;
    _IO_popen is exec::popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
    __fork is process::fork() -> pid_t;
    __connect is lifecycle::connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    __close is lifecycle::close(fd: c_int) -> c_int;
    __dup2 is plumbing::dup2(fd: c_int, to: c_int) -> c_int;
    __fcntl is options::fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    __sigaction is signals::sigaction(signal: c_int, action: *const sigaction, before: *mut sigaction) -> c_int;
    bsd_signal is signals::signal(number: c_int, handler: sighandler_t) -> sighandler_t;
    ssignal is signals::signal(number: c_int, handler: sighandler_t) -> sighandler_t;
    __sysv_signal is signals::sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t;
    __poll is poll::poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    __select is select::select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
}

macro_rules! asynchronous {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(request: *mut aiocb) -> c_int {
                // SAFETY: the program's promise; null is for libc to refuse.
                let fd = unsafe { request.as_ref() }.map(|request| request.aio_fildes);
                // SAFETY: passed on.
                bulk::with_plain(fd, || unsafe { real::$name(request) })
            }
        )*
    };
}

asynchronous! { aio_read aio_write aio_read64 aio_write64 }

macro_rules! listed {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                mode: c_int,
                requests: *const *mut aiocb,
                count: c_int,
                event: *mut sigevent,
            ) -> c_int {
                let fds = (0..usize::try_from(count).unwrap_or(0)).filter_map(|place| {
                    // SAFETY: the program's promise; null requests are skipped.
                    let request = unsafe { (*requests.add(place)).as_ref() };
                    request.map(|request| request.aio_fildes)
                });
                // SAFETY: passed on.
                bulk::with_plain(fds, || unsafe { real::$name(mode, requests, count, event) })
            }
        )*
    };
}

listed! { lio_listio lio_listio64 }
