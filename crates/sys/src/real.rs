//! The functions of the next library in the search order: what a program would have called
//! without us.

use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sighandler_t, sigset_t,
    size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

macro_rules! real {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("The next library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// As the C function's manual demands.
            #[inline]
            #[allow(non_snake_case)]
            pub unsafe fn $name($($arg: $type),*) -> $result {
                let known = &addresses::$name;
                let address = match known.load(Ordering::Relaxed) {
                    0 => find(concat!(stringify!($name), "\0"), known),
                    address => address,
                };
                let address = core::ptr::with_exposed_provenance::<()>(address);
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: `find` returned the address of the C function of this name, whose
                // signature is the one written here.
                let function = unsafe { core::mem::transmute::<*const (), Function>(address) };
                // SAFETY: the caller's promise.
                unsafe { function($($arg),*) }
            }
        )*

        /// Where the functions are, once they have been found.
        #[allow(non_upper_case_globals)]
        mod addresses {
            use super::AtomicUsize;

            $( pub(super) static $name: AtomicUsize = AtomicUsize::new(0); )*
        }

        /// Find all functions now, so that later calls need no dynamic linker.
        pub fn resolve_all() {
            // The linker takes locks; doing this at load time keeps them out of signal handlers,
            // forked children, and threads that a library starts and waits for while it is loaded.
            $(
                let found = lookup(concat!(stringify!($name), "\0"));
                addresses::$name.store(found, Ordering::Relaxed);
            )*
        }
    };
}

fn lookup(name: &str) -> usize {
    // SAFETY: the name ends in NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    // The linker knows "next" by its return address, so this must never become a tail call.
    core::hint::black_box(found).expose_provenance()
}

#[cold]
fn find(name: &str, address: &AtomicUsize) -> usize {
    let found = lookup(name);
    if found == 0 {
        missing();
    }
    address.store(found, Ordering::Relaxed);
    found
}

/// A libc without a function that the program has just called through us cannot be used.
fn missing() -> ! {
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

real! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn sigignore(signal: c_int) -> c_int;
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    fn siginterrupt(signal: c_int, ends_calls: c_int) -> c_int;
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn bind(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, bytes: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: u32, last: u32, flags: c_int) -> c_int;
    fn closefrom(lowest: c_int) -> ();
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: socklen_t) -> c_int;
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: c_long) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn recv(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int, timeout: *mut timespec) -> c_int;
    fn __chk_fail() -> ();
    fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn send(fd: c_int, buffer: *const c_void, bytes: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, buffer: *const c_void, bytes: size_t, flags: c_int, address: *const sockaddr, length: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: u32, flags: c_int) -> c_int;
    fn sendfile(out: c_int, input: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t;
    fn splice(input: c_int, input_offset: *mut libc::loff_t, out: c_int, out_offset: *mut libc::loff_t, bytes: size_t, flags: u32) -> ssize_t;
    fn tee(input: c_int, out: c_int, bytes: size_t, flags: u32) -> ssize_t;
    fn vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: u32) -> ssize_t;
    fn copy_file_range(input: c_int, input_offset: *mut libc::loff_t, out: c_int, out_offset: *mut libc::loff_t, bytes: size_t, flags: u32) -> ssize_t;
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn fork() -> libc::pid_t;
    fn _Fork() -> libc::pid_t;
    fn __register_atfork(prepare: Option<unsafe extern "C" fn()>, parent: Option<unsafe extern "C" fn()>, child: Option<unsafe extern "C" fn()>, library: *mut c_void) -> c_int;
    fn clone(
        run: Option<extern "C" fn(*mut c_void) -> c_int>,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent: *mut c_void,
        tls: *mut c_void,
        child: *mut c_void
    ) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int;
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn execveat(
        dir: c_int,
        path: *const c_char,
        argv: *const *const c_char,
        envp: *const *const c_char,
        flags: c_int
    ) -> c_int;
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawn(pid: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawnp(pid: *mut libc::pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int;
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int;
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, new: c_int) -> c_int;
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fn system(command: *const c_char) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
    fn fclose(stream: *mut c_void) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn __vasprintf_chk(text: *mut *mut c_char, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    fn aio_read(request: *mut libc::aiocb) -> c_int;
    fn aio_write(request: *mut libc::aiocb) -> c_int;
    fn aio_read64(request: *mut libc::aiocb) -> c_int;
    fn aio_write64(request: *mut libc::aiocb) -> c_int;
    fn lio_listio(mode: c_int, requests: *const *mut libc::aiocb, count: c_int, event: *mut libc::sigevent) -> c_int;
    fn lio_listio64(mode: c_int, requests: *const *mut libc::aiocb, count: c_int, event: *mut libc::sigevent) -> c_int;
}
