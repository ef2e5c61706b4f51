//! stdio on sockets goes around the interposed functions inside libc: such a socket is for the
//! kernel alone.

use core::ffi::{c_char, c_int, c_void};

use crosslane_ctl::reason::Reason;
use crosslane_stream::{End, close as closing};
use crosslane_sys::real;

/// How long wrapping a socket waits for its connection to be back on TCP.
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(5);

fn make_plain(fd: c_int) {
    if let Some(end) = End::of(fd) {
        closing::make_plain(&end, Reason::Stdio, PATIENCE);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    make_plain(fd);
    // SAFETY: passed on.
    unsafe { real::fdopen(fd, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    make_plain(fd);
    // SAFETY: passed on; a va_list travels as a pointer.
    unsafe { real::vdprintf(fd, format, arguments) }
}

/// Makes the descriptor in the first argument plain; returns where the next library's function
/// is. Called from the variadic functions below, whose arguments it must not see.
extern "C" fn before_dprintf(fd: c_int) -> usize {
    make_plain(fd);
    real::address(c"dprintf")
}

extern "C" fn before_dprintf_chk(fd: c_int) -> usize {
    make_plain(fd);
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

pub(crate) use forward_variadic;
