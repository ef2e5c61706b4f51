//! Reading and writing where the program says, which may be nowhere. Whoever copies there does it by instructions of which
//! a table says where to go on if they fault (as the Linux kernel's exception table): nothing is done before, and nothing
//! is looked at afterwards. The handler is [`crate::fault`]'s; until that has been asked for the signals ([`crate::fault::take`]),
//! and on processors for which there is no table, such a fault is the program's, as any other
//! (docs/decisions/bad-pointers.md).

use core::mem::MaybeUninit;

use crate::Errno;

/// Whether there is a table.
pub const CAN_TELL: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// There is no memory, or none of the kind, where the program has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

impl From<Fault> for Errno {
    fn from(_: Fault) -> Self {
        Self::FAULT
    }
}

/// Directives, for a template of `asm!`: if the instruction at a label faults, go on at the label operand `fault`. That is
/// as if the instruction had jumped there, so the template must leave what the compiler knows of as it is.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[macro_export]
macro_rules! may_fault {
    ($($at:literal)+) => {
        concat!(
            ".pushsection crosslane_faults, \"aR\", @progbits\n",
            ".balign 4\n",
            $(".long ", $at, " - .\n", ".long {fault} - .\n",)+
            ".popsection"
        )
    };
}

/// An entry of the table: distances from the fields themselves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[repr(C)]
struct MayFault {
    instruction: i32,
    go_on: i32,
}

/// Where to go on after a fault of the instruction at this address; `None` if it is not one that may fault.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn after_fault_at(instruction: usize) -> Option<usize> {
    let (start, end): (*const MayFault, *const MayFault);
    // SAFETY: it reads no memory. The linker defines both symbols, as there is a section of that name: the one below is empty.
    unsafe {
        core::arch::asm!(
            ".pushsection crosslane_faults, \"aR\", @progbits",
            ".balign 4",
            ".popsection",
            ".hidden __start_crosslane_faults",
            ".hidden __stop_crosslane_faults",
            "lea {start}, [rip + __start_crosslane_faults]",
            "lea {end}, [rip + __stop_crosslane_faults]",
            start = lateout(reg) start,
            end = lateout(reg) end,
            options(nomem, nostack, preserves_flags)
        );
    }
    let bytes = end.addr() - start.addr();
    // SAFETY: the linker has put together whole entries, which are constant.
    let table = unsafe { core::slice::from_raw_parts(start, bytes / size_of::<MayFault>()) };
    let at = |field: &i32| {
        let distance = isize::try_from(*field).unwrap_or(0);
        core::ptr::from_ref(field)
            .addr()
            .wrapping_add_signed(distance)
    };
    let entry = table
        .iter()
        .find(|entry| at(&entry.instruction) == instruction)?;
    Some(at(&entry.go_on))
}

/// Copy where either side is the program's, and perhaps nowhere; then some bytes have been copied. Not for many.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`], but for memory that is not there.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "2: rep movsb",
            may_fault!("2b"),
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") bytes => _,
            fault = label { return Err(Fault) },
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::copy_nonoverlapping(from, to, bytes);
    }
    Ok(())
}

/// A value that the program keeps somewhere.
///
/// # Errors
/// If it does not.
///
/// # Safety
/// What is there must be a `T`, whatever its bytes are.
#[inline]
pub unsafe fn read<T: Copy>(from: *const T) -> Result<T, Fault> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: there is room for a `T`, and the table is for the rest.
    unsafe { copy(from.cast(), value.as_mut_ptr().cast(), size_of::<T>()) }?;
    // SAFETY: copied whole; any bytes are a value, as the caller promises.
    Ok(unsafe { value.assume_init() })
}

/// Put a value where the program wants it.
///
/// # Errors
/// If there is no room.
///
/// # Safety
/// What is there must be the program's, and wanted from its call.
#[inline]
pub unsafe fn write<T: Copy>(to: *mut T, value: T) -> Result<(), Fault> {
    let value = &value;
    // SAFETY: the value is valid for reads, and the table is for the rest.
    unsafe { copy(core::ptr::from_ref(value).cast(), to.cast(), size_of::<T>()) }
}

const PAGE_BYTES: usize = 4096;

/// Whether all of the program's bytes there can be read. Another thread of the program may change that.
#[inline]
pub fn is_readable(start: *const u8, bytes: usize) -> bool {
    there(start, bytes, is_byte_readable) == bytes
}

/// How many of the program's bytes there can be written, up to the first that cannot. What is there stays as it is, whoever
/// writes there meanwhile.
#[inline]
pub fn writable(start: *const u8, bytes: usize) -> usize {
    there(start, bytes, is_byte_writable)
}

/// Look at one byte in each page.
#[inline]
fn there(start: *const u8, bytes: usize, is_there: impl Fn(*const u8) -> bool) -> usize {
    let mut done = 0;
    while done < bytes {
        let at = start.wrapping_add(done);
        if !is_there(at) {
            return done;
        }
        done += PAGE_BYTES - at.addr() % PAGE_BYTES;
    }
    bytes
}

#[inline]
fn is_byte_readable(at: *const u8) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the byte is read, by an instruction that may fault, and forgotten.
    unsafe {
        core::arch::asm!(
            "2: cmp byte ptr [{at}], 0",
            may_fault!("2b"),
            at = in(reg) at,
            fault = label { return false },
            options(nostack, readonly)
        );
    }
    let _ = at;
    true
}

#[inline]
fn is_byte_writable(at: *const u8) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the byte stays as it is.
    unsafe {
        core::arch::asm!(
            "2: lock or byte ptr [{at}], 0",
            may_fault!("2b"),
            at = in(reg) at,
            fault = label { return false },
            options(nostack)
        );
    }
    let _ = at;
    true
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::fault;

    const NOWHERE: usize = 3 * PAGE_BYTES;

    /// Three pages, of which nothing can be read, read only, or both; behind them nothing can.
    fn pages() -> *mut u8 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                NOWHERE + PAGE_BYTES,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start.cast::<u8>();
        let pages = [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE];
        for (at, protection) in pages.into_iter().enumerate() {
            let page = start.wrapping_add((at + 1) * PAGE_BYTES);
            // SAFETY: a page of the mapping above.
            let changed = unsafe { libc::mprotect(page.cast(), PAGE_BYTES, protection) };
            assert_eq!(changed, 0);
        }
        start
    }

    #[test]
    fn what_is_not_there_is_told() {
        fault::take(libc::SIGSEGV).unwrap();
        let none = pages();
        let (constant, both) = (
            none.wrapping_add(PAGE_BYTES),
            none.wrapping_add(2 * PAGE_BYTES),
        );
        let is_writable = |start, bytes| writable(start, bytes) == bytes;
        let found = |start: *mut u8| (is_readable(start, 8), is_writable(start, 8));
        assert_eq!(found(none), (false, false));
        assert_eq!(found(constant), (true, false));
        assert_eq!(found(both), (true, true));
        assert!(is_writable(both, PAGE_BYTES) && !is_writable(constant, 2 * PAGE_BYTES));
        assert!(is_readable(constant, 2 * PAGE_BYTES) && !is_readable(none, NOWHERE));
        assert!(
            !is_readable(core::ptr::without_provenance(8), 1),
            "no page of ours"
        );
        assert!(is_readable(none, 0), "nothing is there");
        assert_eq!(writable(both.wrapping_add(9), NOWHERE), PAGE_BYTES - 9);
        let put = |to: *mut u8| {
            // SAFETY: an integer, where there is room for it, or none.
            unsafe { write(to.cast::<u64>(), 7) }
        };
        let look = |from: *mut u8| {
            // SAFETY: an integer, which is there, or not.
            unsafe { read(from.cast::<u64>()) }
        };
        assert_eq!((put(both), look(both)), (Ok(()), Ok(7)));
        assert_eq!((put(constant), look(constant)), (Err(Fault), Ok(0)));
        assert_eq!((put(none), look(none)), (Err(Fault), Err(Fault)));
        assert_eq!(look(constant.wrapping_sub(4)), Err(Fault), "half of it");
    }
}
