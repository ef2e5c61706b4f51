//! execl(3) and its relatives: their arguments are put into an array, so that they can fail as the
//! others do.

use core::ffi::{c_char, c_int};

use crate::exec::{execv, execve, execvp};

/// Arguments that travel in registers; the others are on the stack.
#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 6;
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 8;

type Word = *const c_char;

/// The argument at a place.
///
/// # Safety
/// The call has an argument there; `registers` and `stack` are where its arguments are.
unsafe fn argument(registers: *const Word, stack: *const Word, at: usize) -> Word {
    match at.checked_sub(REGISTERS) {
        // SAFETY: the caller's promise.
        None => unsafe { registers.add(at).read() },
        // SAFETY: the caller's promise.
        Some(further) => unsafe { stack.add(further).read() },
    }
}

/// The program's arguments, with the null that ends them.
///
/// # Safety
/// As execl(3) demands, of the arguments in these places.
unsafe fn list(registers: *const Word, stack: *const Word) -> Vec<Word> {
    let mut words = Vec::new();
    while words.last().is_none_or(|word: &Word| !word.is_null()) {
        // SAFETY: a null ends the list, and has not been seen.
        words.push(unsafe { argument(registers, stack, words.len() + 1) });
    }
    words
}

unsafe extern "C" fn run_execl(registers: *const Word, stack: *const Word) -> c_int {
    // SAFETY: these are the arguments of an execl.
    unsafe { execv(registers.read(), list(registers, stack).as_ptr()) }
}

unsafe extern "C" fn run_execlp(registers: *const Word, stack: *const Word) -> c_int {
    // SAFETY: these are the arguments of an execlp.
    unsafe { execvp(registers.read(), list(registers, stack).as_ptr()) }
}

unsafe extern "C" fn run_execle(registers: *const Word, stack: *const Word) -> c_int {
    // SAFETY: these are the arguments of an execle.
    let words = unsafe { list(registers, stack) };
    // SAFETY: the environment comes after the null.
    let environment = unsafe { argument(registers, stack, words.len() + 1) };
    // SAFETY: as above.
    unsafe { execve(registers.read(), words.as_ptr(), environment.cast()) }
}

/// A variadic function that calls `$run` with the addresses of its arguments in registers and of
/// those on the stack.
#[cfg(target_arch = "x86_64")]
macro_rules! gather {
    ($name:ident, $run:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "sub rsp, 48",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "mov rdi, rsp",
                "lea rsi, [rbp + 16]",
                "call {run}",
                "leave",
                "ret",
                run = sym $run,
            )
        }
    };
}

/// A variadic function that calls `$run` with the addresses of its arguments in registers and of
/// those on the stack.
#[cfg(target_arch = "aarch64")]
macro_rules! gather {
    ($name:ident, $run:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x0, sp, #16",
                "add x1, sp, #80",
                "bl {run}",
                "ldp x29, x30, [sp], #80",
                "ret",
                run = sym $run,
            )
        }
    };
}

gather!(execl, run_execl);
gather!(execlp, run_execlp);
gather!(execle, run_execle);
