//! stdio on sockets goes around the interposed functions inside libc. A stream gets functions of
//! ours to read and write by (fopencookie(3)); what is printed to a descriptor goes by TCP.

use core::ffi::{c_char, c_int, c_void};
use core::time::Duration;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::Mode;
use crosslane_stream::family::Family;
use crosslane_stream::{End, close as closing, raw, replay, send, switch};
use crosslane_sys::{Errno, kernel, real};
use libc::{FILE, size_t, ssize_t};

use crate::{c, input, lifecycle, output, progress};

/// How long a call that prints to a descriptor waits for TCP to have room for what comes before.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a peer is waited for to come back to TCP.
const PATIENCE_FOR_PEER: Duration = Duration::from_millis(500);

/// Where glibc keeps a stream's descriptor, on every 64-bit Linux since 1998; fopencookie leaves
/// it below zero, and fileno(3) reads it.
const FILENO_OFFSET: usize = 112;

/// The buffer of a stream whose socket does not say.
const PAGE: usize = 4096;

/// `cookie_io_functions_t` of fopencookie(3).
#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(
        cookie: *mut c_void,
        mode: *const c_char,
        functions: CookieFunctions,
    ) -> *mut FILE;
}

/// What a cookie points to.
struct Stream {
    fd: c_int,
    /// As large as that of libc's own stream, so that a stream is written in the same pieces.
    buffer: Vec<u8>,
}

impl Stream {
    fn new(fd: c_int) -> Self {
        // SAFETY: a stat is plain integers, for which zero is a value.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: the stat is valid for writes.
        let known = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
        let block = usize::try_from(stat.st_blksize).ok().filter(|_| known);
        Self {
            fd,
            buffer: vec![0; block.unwrap_or(PAGE)],
        }
    }
}

/// The descriptor that a cookie stands for.
fn fd_of(cookie: *mut c_void) -> c_int {
    // SAFETY: a cookie points to a stream until that is closed.
    unsafe { (*cookie.cast::<Stream>()).fd }
}

unsafe extern "C" fn read_stream(cookie: *mut c_void, to: *mut c_char, bytes: size_t) -> ssize_t {
    // SAFETY: stdio's own buffer.
    unsafe { input::read(fd_of(cookie), to.cast(), bytes) }
}

/// As libc's own streams: all of it, or what has gone before an error.
unsafe extern "C" fn write_stream(
    cookie: *mut c_void,
    from: *const c_char,
    bytes: size_t,
) -> ssize_t {
    let mut done = 0;
    while done < bytes {
        let rest = from.wrapping_add(done).cast();
        // SAFETY: stdio's own buffer.
        match usize::try_from(unsafe { output::write(fd_of(cookie), rest, bytes - done) }) {
            Ok(sent) => done += sent,
            // Less than all is an error to stdio, and errno is set.
            Err(_) => break,
        }
    }
    done.cast_signed()
}

/// No socket has a position, which a flush of what has been read ahead asks for.
unsafe extern "C" fn seek_stream(_: *mut c_void, _: *mut i64, _: c_int) -> c_int {
    c::fail(Errno(libc::ESPIPE))
}

unsafe extern "C" fn close_stream(cookie: *mut c_void) -> c_int {
    // SAFETY: `fdopen` leaked it, and stdio uses neither it nor its buffer after this.
    let stream = unsafe { Box::from_raw(cookie.cast::<Stream>()) };
    // SAFETY: numbers only.
    unsafe { lifecycle::close(stream.fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // A socket may become a connection later.
    if Family::of(fd).is_none() {
        // SAFETY: passed on.
        return unsafe { real::fdopen(fd, mode) }.cast();
    }
    let functions = CookieFunctions {
        read: read_stream,
        write: write_stream,
        seek: Some(seek_stream),
        close: close_stream,
    };
    let mut cookie = Box::new(Stream::new(fd));
    let (buffer, size) = (cookie.buffer.as_mut_ptr(), cookie.buffer.len());
    let cookie = Box::into_raw(cookie);
    // SAFETY: the functions know what the cookie is; the mode is the program's.
    let stream = unsafe { fopencookie(cookie.cast(), mode, functions) };
    if stream.is_null() {
        // SAFETY: just leaked, and nobody else has it.
        drop(unsafe { Box::from_raw(cookie) });
        return stream;
    }
    // SAFETY: inside glibc's structure, see `FILENO_OFFSET`.
    let fileno = unsafe { stream.byte_add(FILENO_OFFSET) };
    // SAFETY: as above; it is an aligned int.
    unsafe { fileno.cast::<c_int>().write(fd) };
    // SAFETY: a new stream, and a buffer that lives until it is closed.
    unsafe { libc::setvbuf(stream, buffer.cast(), libc::_IOFBF, size) };
    stream
}

/// The connection is one of libc's own streams from now on, which go around us.
pub fn leave(end: &End) {
    closing::make_plain(end, Reason::Stdio, PATIENCE_FOR_PEER);
    leave_lane(end);
    progress::hand_back(end);
}

/// What is printed next goes around us: by TCP, behind all that was sent before.
fn send_by_tcp(fd: c_int) {
    if let Some(end) = End::of(fd) {
        // What the receiver wants to have again comes before that.
        switch::attend(&end);
        switch::pin(&end, Reason::Stdio);
        leave_lane(&end);
        raw::lose_place(&end);
    }
}

fn leave_lane(end: &End) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while end.tx_mode() != Mode::Tcp && std::time::Instant::now() < deadline {
        kernel::nap(Duration::from_micros(50));
        if let Err(errno) = replay::finish_replay(end, true) {
            send::keep_error(end, errno);
        }
        switch::leave(end, Reason::Stdio);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    send_by_tcp(fd);
    // SAFETY: passed on; a va_list travels as a pointer.
    unsafe { real::vdprintf(fd, format, arguments) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    send_by_tcp(fd);
    // SAFETY: passed on; a va_list travels as a pointer.
    unsafe { real::__vdprintf_chk(fd, flag, format, arguments) }
}

/// Has the descriptor in the first argument send by TCP; returns where the next library's function
/// is. Called from the variadic functions below, whose arguments it must not see.
extern "C" fn before_dprintf(fd: c_int) -> usize {
    send_by_tcp(fd);
    real::address(c"dprintf")
}

extern "C" fn before_dprintf_chk(fd: c_int) -> usize {
    send_by_tcp(fd);
    real::address(c"__dprintf_chk")
}

/// A variadic function that calls `$before` with its first argument and then goes on in the next
/// library with all of its arguments untouched.
#[cfg(target_arch = "x86_64")]
macro_rules! forward_variadic {
    ($name:ident, $before:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 192",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov [rsp + 48], rax",
                "movups [rsp + 64], xmm0",
                "movups [rsp + 80], xmm1",
                "movups [rsp + 96], xmm2",
                "movups [rsp + 112], xmm3",
                "movups [rsp + 128], xmm4",
                "movups [rsp + 144], xmm5",
                "movups [rsp + 160], xmm6",
                "movups [rsp + 176], xmm7",
                "call {before}",
                "mov r11, rax",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "mov rdx, [rsp + 16]",
                "mov rcx, [rsp + 24]",
                "mov r8, [rsp + 32]",
                "mov r9, [rsp + 40]",
                "mov rax, [rsp + 48]",
                "movups xmm0, [rsp + 64]",
                "movups xmm1, [rsp + 80]",
                "movups xmm2, [rsp + 96]",
                "movups xmm3, [rsp + 112]",
                "movups xmm4, [rsp + 128]",
                "movups xmm5, [rsp + 144]",
                "movups xmm6, [rsp + 160]",
                "movups xmm7, [rsp + 176]",
                "leave",
                "jmp r11",
                before = sym $before,
            )
        }
    };
}

/// A variadic function that calls `$before` with its first argument and then goes on in the next
/// library with all of its arguments untouched.
#[cfg(target_arch = "aarch64")]
macro_rules! forward_variadic {
    ($name:ident, $before:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-208]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp q0, q1, [sp, #80]",
                "stp q2, q3, [sp, #112]",
                "stp q4, q5, [sp, #144]",
                "stp q6, q7, [sp, #176]",
                "bl {before}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp q0, q1, [sp, #80]",
                "ldp q2, q3, [sp, #112]",
                "ldp q4, q5, [sp, #144]",
                "ldp q6, q7, [sp, #176]",
                "ldp x29, x30, [sp], #208",
                "br x16",
                before = sym $before,
            )
        }
    };
}

forward_variadic!(dprintf, before_dprintf);
forward_variadic!(__dprintf_chk, before_dprintf_chk);
