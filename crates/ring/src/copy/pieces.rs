//! Pieces of a copy, of which the program's side may fault, and the ring's may not.

use crosslane_sys::program::Fault;

/// Copy by instructions of which those at some labels may fault: the first ones where they go into the ring.
macro_rules! copy {
    (
        $into:expr,
        [$($instruction:literal),+],
        [$($load:literal)+], [$($store:literal)+],
        $($operands:tt)+
    ) => {
        if $into {
            copy!([$($instruction),+], [$($load)+], $($operands)+);
        } else {
            copy!([$($instruction),+], [$($store)+], $($operands)+);
        }
    };
    ([$($instruction:literal),+], [$($at:literal)+], $($operands:tt)+) => {
        // SAFETY: the caller's promise; where a side of it does not hold, the table says how to go on.
        unsafe {
            core::arch::asm!(
                $($instruction,)+
                crosslane_sys::may_fault!($($at)+),
                $($operands)+
                fault = label { return Err(Fault) },
                options(nostack)
            );
        }
    };
}
pub(super) use copy;

/// Copy a few bytes, of which pieces may overlap. All in one: to the compiler each place that may fault is a jump, for which it
/// arranges its registers.
///
/// # Safety
/// As [`super::out_of_ring`].
#[inline(always)]
pub(super) unsafe fn few<const INTO: bool>(
    from: *const u8,
    to: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    copy!(
        INTO,
        [
            "cmp {bytes}, 16", "jae 8f",
            // Less than a pair: two words, two halves, or up to three bytes.
            "cmp {bytes}, 8", "jb 6f",
            "28: mov {x}, [{from}]", "58: mov [{to}], {x}",
            "29: mov {x}, [{from} + {bytes} - 8]", "59: mov [{to} + {bytes} - 8], {x}",
            "jmp 9f",
            "6:",
            "cmp {bytes}, 4", "jb 7f",
            "30: mov {x:e}, [{from}]", "60: mov [{to}], {x:e}",
            "31: mov {x:e}, [{from} + {bytes} - 4]", "61: mov [{to} + {bytes} - 4], {x:e}",
            "jmp 9f",
            "7:",
            "cmp {bytes}, 1", "jb 9f", "je 70f",
            "32: movzx {x:e}, word ptr [{from}]", "62: mov [{to}], {x:x}",
            "70:",
            "33: movzx {x:e}, byte ptr [{from} + {bytes} - 1]", "63: mov [{to} + {bytes} - 1], {x:l}",
            "jmp 9f",
            // Lines, from the last on.
            "2:",
            "lea {x}, [{bytes} - 64]",
            "5:",
            "24: movups {a}, [{from} + {x}]",
            "25: movups {b}, [{from} + {x} + 16]",
            "26: movups {c}, [{from} + {x} + 32]",
            "27: movups {d}, [{from} + {x} + 48]",
            "54: movups [{to} + {x}], {a}",
            "55: movups [{to} + {x} + 16], {b}",
            "56: movups [{to} + {x} + 32], {c}",
            "57: movups [{to} + {x} + 48], {d}",
            "test {x}, {x}", "jz 9f",
            "sub {x}, 64", "jae 5b",
            "xor {x:e}, {x:e}", "jmp 5b",
            // One or two pairs of words from either end.
            "8:",
            "cmp {bytes}, 64", "ja 2b",
            "20: movups {a}, [{from}]",
            "21: movups {b}, [{from} + {bytes} - 16]",
            "cmp {bytes}, 32", "jbe 4f",
            "22: movups {c}, [{from} + 16]",
            "23: movups {d}, [{from} + {bytes} - 32]",
            "50: movups [{to} + 16], {c}",
            "51: movups [{to} + {bytes} - 32], {d}",
            "4:",
            "52: movups [{to}], {a}",
            "53: movups [{to} + {bytes} - 16], {b}",
            "9:"
        ],
        ["20b" "21b" "22b" "23b" "24b" "25b" "26b" "27b" "28b" "29b" "30b" "31b" "32b" "33b"],
        ["50b" "51b" "52b" "53b" "54b" "55b" "56b" "57b" "58b" "59b" "60b" "61b" "62b" "63b"],
        from = in(reg) from,
        to = in(reg) to,
        bytes = in(reg) bytes,
        x = out(reg) _,
        a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
    );
    Ok(())
}

/// Copy what the first line of a record has room for, into the ring.
///
/// # Safety
/// As [`super::out_of_ring`], for so many bytes.
#[inline(always)]
pub(super) unsafe fn first_in(from: *const u8, to: *mut u8) -> Result<(), Fault> {
    copy!(
        [
            "20: movups {a}, [{from}]",
            "21: movups {b}, [{from} + 16]",
            "22: movups {c}, [{from} + 32]",
            "23: movups {d}, [{from} + {bytes} - 16]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + {bytes} - 16], {d}"
        ],
        ["20b" "21b" "22b" "23b"],
        from = in(reg) from,
        to = in(reg) to,
        bytes = const super::FIRST_BYTES,
        a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
    );
    Ok(())
}

/// A round of [`by_vectors`].
const ROUND_BYTES: usize = 128;

/// Copy many bytes: more than twice those of a round.
///
/// # Safety
/// As [`super::out_of_ring`].
#[inline]
pub(super) unsafe fn many<const INTO: bool>(
    from: *const u8,
    to: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    debug_assert!(bytes > 2 * ROUND_BYTES);
    if std::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise, and what has just been found out.
        return unsafe { by_vectors::<INTO>(from, to, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { few::<INTO>(from, to, bytes) }
}

/// Copy by long vectors: one up to where the target is aligned to them, then rounds, and one that ends at the end.
///
/// # Safety
/// As [`many`]; the processor must have AVX.
#[inline]
unsafe fn by_vectors<const INTO: bool>(
    from: *const u8,
    to: *mut u8,
    bytes: usize,
) -> Result<(), Fault> {
    const VECTOR_BYTES: usize = 32;
    let first = VECTOR_BYTES - to.addr() % VECTOR_BYTES;
    copy!(
        INTO,
        [
            "20: vmovups ymm0, [{from}]",
            "30: vmovups [{to}], ymm0",
            "4:",
            "21: vmovups ymm0, [{from} + {at}]",
            "22: vmovups ymm1, [{from} + {at} + 32]",
            "23: vmovups ymm2, [{from} + {at} + 64]",
            "24: vmovups ymm3, [{from} + {at} + 96]",
            "31: vmovups [{to} + {at}], ymm0",
            "32: vmovups [{to} + {at} + 32], ymm1",
            "33: vmovups [{to} + {at} + 64], ymm2",
            "34: vmovups [{to} + {at} + 96], ymm3",
            "add {at}, 128",
            "cmp {at}, {last}",
            "jb 4b",
            "25: vmovups ymm0, [{from} + {last}]",
            "26: vmovups ymm1, [{from} + {last} + 32]",
            "27: vmovups ymm2, [{from} + {last} + 64]",
            "28: vmovups ymm3, [{from} + {last} + 96]",
            "35: vmovups [{to} + {last}], ymm0",
            "36: vmovups [{to} + {last} + 32], ymm1",
            "37: vmovups [{to} + {last} + 64], ymm2",
            "38: vmovups [{to} + {last} + 96], ymm3",
            "vzeroupper"
        ],
        ["20b" "21b" "22b" "23b" "24b" "25b" "26b" "27b" "28b"],
        ["30b" "31b" "32b" "33b" "34b" "35b" "36b" "37b" "38b"],
        from = in(reg) from,
        to = in(reg) to,
        at = inout(reg) first => _,
        last = in(reg) bytes - ROUND_BYTES,
        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
        // Cleared beyond 128 bits, as by any function.
        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
        out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
        out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
    );
    Ok(())
}
