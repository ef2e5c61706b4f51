//! stdio on sockets goes around the interposed functions inside libc. A stream gets functions of
//! ours to read and write by (fopencookie(3)); what is printed to a descriptor is printed to memory first.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use crosslane_ctl::reason::Reason;
use crosslane_ctl::slab::{Mode, end_flags};
use crosslane_stream::family::Family;
use crosslane_stream::{End, close as closing, lost, replay, rest, send, switch};
use crosslane_sys::{Errno, cancel, kernel, real};
use libc::{FILE, size_t, ssize_t};

use crate::{c, epoll, input, lifecycle, output, progress};

/// How long a stream of libc's own waits for TCP to have room for what comes before.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a peer is waited for to come back to TCP.
const PATIENCE_FOR_PEER: Duration = Duration::from_millis(500);

/// Where glibc keeps a stream's descriptor, on every 64-bit Linux since 1998; fopencookie leaves
/// it below zero, and fileno(3) reads it.
const FILENO_OFFSET: usize = 112;

/// Where glibc keeps a stream's table of functions, likewise, and which one streams of fopencookie have; 0 before the first.
const TABLE_OFFSET: usize = 216;
static COOKIE_TABLE: AtomicUsize = AtomicUsize::new(0);

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
    // SAFETY: stdio's own buffer. Less than all is an error to stdio.
    unsafe { write_all(fd_of(cookie), from, bytes) }.cast_signed()
}

/// What of a text goes before an error, of which errno tells.
///
/// # Safety
/// There are so many bytes.
unsafe fn write_all(fd: c_int, from: *const c_char, bytes: size_t) -> usize {
    let mut done = 0;
    while done < bytes {
        let rest = from.wrapping_add(done).cast();
        // SAFETY: the caller's promise.
        match usize::try_from(unsafe { output::write(fd, rest, bytes - done) }) {
            Ok(sent) => done += sent,
            Err(_) => break,
        }
    }
    done
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

/// A stream's table of functions.
///
/// # Safety
/// It is a stream.
unsafe fn table_of(stream: *mut FILE) -> usize {
    // SAFETY: inside glibc's structure, see `TABLE_OFFSET`.
    unsafe { stream.cast::<usize>().byte_add(TABLE_OFFSET).read() }
}

/// Whether a stream is of the kind that [`fdopen`] makes here. Others of that kind have no descriptor.
///
/// # Safety
/// It is a stream.
pub unsafe fn is_ours(stream: *mut FILE) -> bool {
    // SAFETY: the caller's promise.
    unsafe { table_of(stream) == COOKIE_TABLE.load(Ordering::Relaxed) }
}

/// libc closes the descriptor of a stream of its own unseen, which a connection may have been copied onto.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the program's promise.
    if !unsafe { is_ours(stream) } {
        // SAFETY: as above.
        let fd = unsafe { stream.cast::<c_int>().byte_add(FILENO_OFFSET).read() };
        if End::of(fd).is_some() || epoll::is_known(fd) {
            cancel::never(|| lifecycle::before_close(fd));
        }
    }
    // SAFETY: passed on.
    unsafe { real::fclose(stream.cast()) }
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
    // SAFETY: just made.
    COOKIE_TABLE.store(unsafe { table_of(stream) }, Ordering::Relaxed);
    // SAFETY: inside glibc's structure, see `FILENO_OFFSET`.
    let fileno = unsafe { stream.byte_add(FILENO_OFFSET) };
    // SAFETY: as above; it is an aligned int.
    unsafe { fileno.cast::<c_int>().write(fd) };
    // SAFETY: a new stream, and a buffer that lives until it is closed.
    unsafe { libc::setvbuf(stream, buffer.cast(), libc::_IOFBF, size) };
    // SAFETY: libc has just read the program's mode.
    if unsafe { mode.cast::<u8>().read() } == b'a' {
        set_append(fd);
    }
    stream
}

/// As libc for a stream that appends; a socket does not heed it, but tells it.
fn set_append(fd: c_int) {
    if let Ok(flags) = kernel::status_flags(fd) {
        // SAFETY: numbers only.
        unsafe { real::fcntl(fd, libc::F_SETFL, (flags | libc::O_APPEND).into()) };
    }
}

/// The connection is one of libc's own streams from now on, which go around us.
pub fn leave(end: &End) {
    closing::make_plain(end, Reason::Stdio, PATIENCE_FOR_PEER);
    leave_lane(end);
    if end.has_flags(end_flags::LOST) && lost::is_dry(end) {
        // libc would read what comes by TCP for what is missing.
        rest::leave_behind(end, Reason::Stdio);
    }
    progress::hand_back_now(end);
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

/// What vasprintf(3) has allocated.
struct Text(*mut c_char);

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: it is malloc's, or null.
        unsafe { libc::free(self.0.cast()) };
    }
}

/// Print to a connection, which libc would do around us: all of it, or an error behind a part.
fn print(fd: c_int, format: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = Text(core::ptr::null_mut());
    let count = format(&raw mut text.0);
    let Ok(bytes) = usize::try_from(count) else {
        // Nobody knows what stands there.
        core::mem::forget(text);
        return count;
    };
    // SAFETY: so many have been printed.
    let sent = cancel::guarded(&text, || unsafe { write_all(fd, text.0, bytes) });
    if sent == bytes { count } else { -1 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    if End::of(fd).is_none() {
        // SAFETY: passed on; a va_list travels as a pointer.
        return unsafe { real::vdprintf(fd, format, arguments) };
    }
    // SAFETY: as above.
    print(fd, |text| unsafe {
        real::vasprintf(text, format, arguments)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    if End::of(fd).is_none() {
        // SAFETY: passed on; a va_list travels as a pointer.
        return unsafe { real::__vdprintf_chk(fd, flag, format, arguments) };
    }
    // SAFETY: as above.
    print(fd, |text| unsafe {
        real::__vasprintf_chk(text, flag, format, arguments)
    })
}

/// A variadic function that calls `$run`, which has so many arguments before a va_list. Such a list is at the top of the
/// frame, behind the registers that hold arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! with_list {
    ($name:ident, $run:ident, $named:literal, $register:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "sub rsp, 208",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "movups [rsp + 48], xmm0",
                "movups [rsp + 64], xmm1",
                "movups [rsp + 80], xmm2",
                "movups [rsp + 96], xmm3",
                "movups [rsp + 112], xmm4",
                "movups [rsp + 128], xmm5",
                "movups [rsp + 144], xmm6",
                "movups [rsp + 160], xmm7",
                // Where the next whole and the next floating argument are among those, the stack's, and those.
                "mov dword ptr [rsp + 176], 8 * {named}",
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rbp + 16]",
                "mov [rsp + 184], rax",
                "mov [rsp + 192], rsp",
                concat!("lea ", $register, ", [rsp + 176]"),
                "call {run}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                named = const $named,
                run = sym $run,
            )
        }
    };
}

/// A variadic function that calls `$run`, which has so many arguments before a va_list. Such a list is at the bottom of the
/// frame, before the registers that hold arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! with_list {
    ($name:ident, $run:ident, $named:literal, $register:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-240]!",
                ".cfi_def_cfa_offset 240",
                ".cfi_offset x29, -240",
                ".cfi_offset x30, -232",
                "mov x29, sp",
                "stp x0, x1, [sp, #48]",
                "stp x2, x3, [sp, #64]",
                "stp x4, x5, [sp, #80]",
                "stp x6, x7, [sp, #96]",
                "stp q0, q1, [sp, #112]",
                "stp q2, q3, [sp, #144]",
                "stp q4, q5, [sp, #176]",
                "stp q6, q7, [sp, #208]",
                // The stack's, the ends of the whole and of the floating ones, and where the next of each is before them.
                "add x9, sp, #240",
                "add x10, sp, #112",
                "stp x9, x10, [sp, #16]",
                "str x9, [sp, #32]",
                "mov w10, #(8 * ({named} - 8))",
                "mov w11, #-128",
                "stp w10, w11, [sp, #40]",
                concat!("add ", $register, ", sp, #16"),
                "bl {run}",
                "ldp x29, x30, [sp], #240",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                named = const $named,
                run = sym $run,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
with_list!(dprintf, vdprintf, 2, "rdx");
#[cfg(target_arch = "x86_64")]
with_list!(__dprintf_chk, __vdprintf_chk, 3, "rcx");
#[cfg(target_arch = "aarch64")]
with_list!(dprintf, vdprintf, 2, "x2");
#[cfg(target_arch = "aarch64")]
with_list!(__dprintf_chk, __vdprintf_chk, 3, "x3");
