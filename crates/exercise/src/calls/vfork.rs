//! vfork(2), which returns twice on one stack: no function of Rust may call it.

use std::arch::naked_asm;
use std::ffi::CStr;
use std::os::fd::RawFd;

use crate::Errno;

/// What the child does before it is another program; it has this memory in common with its parent.
#[repr(C)]
struct Order {
    standard: Option<RawFd>,
    path: *const libc::c_char,
    arguments: *const *const libc::c_char,
}

/// What a child exits with that has become no other program.
pub const NO_PROGRAM: i32 = 127;

/// Call vfork(2) and execv(3), as C programs do that make many children. The program may have a descriptor as standard
/// input and output; it has all others under their numbers. Returns when it is that program, or has failed to be.
pub fn vfork_and_exec(
    path: &CStr,
    arguments: &[&CStr],
    standard: Option<RawFd>,
) -> Result<libc::pid_t, Errno> {
    let ends_with_null = arguments.iter().map(|argument| argument.as_ptr());
    let arguments: Vec<_> = ends_with_null.chain([std::ptr::null()]).collect();
    let order = Order {
        standard,
        path: path.as_ptr(),
        arguments: arguments.as_ptr(),
    };
    // SAFETY: the order and all that it points to outlive the call; `begin` does not return, and does what a child of
    // vfork may.
    let pid = unsafe { vfork_and(begin, &raw const order) };
    if pid < 0 { Err(Errno::last()) } else { Ok(pid) }
}

unsafe extern "C" fn begin(order: *const Order) -> ! {
    // SAFETY: `vfork_and_exec` passes an order that its caller keeps.
    let order = unsafe { order.read() };
    for number in [0, 1] {
        if let Some(fd) = order.standard {
            // SAFETY: the child has a table of descriptors of its own.
            unsafe { libc::dup2(fd, number) };
        }
    }
    // SAFETY: the path and the arguments are C strings, and the list ends with null.
    unsafe { libc::execv(order.path, order.arguments) };
    // SAFETY: ends the child.
    unsafe { libc::_exit(NO_PROGRAM) }
}

unsafe extern "C" {
    fn vfork() -> libc::pid_t;
}

/// vfork(2), with `child` called in the child. What the parent needs is above the child's stack, or in registers that it
/// gets back.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn vfork_and(
    child: unsafe extern "C" fn(*const Order) -> !,
    order: *const Order,
) -> libc::pid_t {
    naked_asm!(
        "push rbx",
        "push r12",
        "sub rsp, 8",
        "mov rbx, rdi",
        "mov r12, rsi",
        "call {vfork}@PLT",
        "test eax, eax",
        "jnz 2f",
        "mov rdi, r12",
        "call rbx",
        "ud2",
        "2:",
        "add rsp, 8",
        "pop r12",
        "pop rbx",
        "ret",
        vfork = sym vfork,
    )
}

/// vfork(2), with `child` called in the child. What the parent needs is above the child's stack, or in registers that it
/// gets back.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn vfork_and(
    child: unsafe extern "C" fn(*const Order) -> !,
    order: *const Order,
) -> libc::pid_t {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x19, x20, [sp, #16]",
        "mov x19, x0",
        "mov x20, x1",
        "bl {vfork}",
        "cbnz w0, 2f",
        "mov x0, x20",
        "blr x19",
        "brk #1",
        "2:",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "ret",
        vfork = sym vfork,
    )
}
