//! One system call, issued here: no libc function is entered, so none that the library has
//! interposed.

use crate::Errno;

/// Issue system call `number`.
///
/// # Safety
/// As the kernel's manual demands for this call: pointers among the arguments must be valid for
/// what the call does with them.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let result: libc::c_long;
    // SAFETY: the System V ABI for system calls: arguments in these registers, rcx and r11
    // destroyed, result in rax; memory effects are the caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    split(result)
}

/// Issue system call `number`.
///
/// # Safety
/// As the kernel's manual demands for this call: pointers among the arguments must be valid for
/// what the call does with them.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    let result: libc::c_long;
    // SAFETY: the AArch64 Linux ABI for system calls: number in x8, arguments in x0 to x5, result
    // in x0; memory effects are the caller's promise.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0].cast_signed() as libc::c_long => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    split(result)
}

fn split(result: libc::c_long) -> Result<usize, Errno> {
    match usize::try_from(result) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno(i32::try_from(-result).unwrap_or(libc::EINVAL))),
    }
}
