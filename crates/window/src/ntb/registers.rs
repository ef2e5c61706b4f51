//! Registers, each read and written as a whole, by an access as wide as it is.

use crosslane_sys::memory::Mapping;

/// A register of the region that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name, for people.
    pub name: &'static str,
    /// Where it begins, a multiple of its width.
    pub at: usize,
    /// Its width: 8, 16, 32 or 64.
    pub bits: u32,
}

impl Register {
    /// A register.
    pub const fn new(name: &'static str, at: usize, bits: u32) -> Self {
        assert!(matches!(bits, 8 | 16 | 32 | 64));
        assert!(at.is_multiple_of(bits as usize / 8));
        Self { name, at, bits }
    }

    /// All of its bits: what a processor reads where no device answers.
    pub const fn ones(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The next register but `n` of its kind.
    #[must_use]
    pub const fn nth(self, n: usize) -> Self {
        Self::new(self.name, self.at + n * (self.bits as usize / 8), self.bits)
    }
}

/// What a driver talks to: a device's registers, or a model of them.
pub trait Registers: Send + Sync {
    /// Read a register.
    fn read(&self, register: Register) -> u64;

    /// Write a register. Bits above its width are not written.
    fn write(&self, register: Register, value: u64);
}

/// Registers of a device that this process has mapped.
#[derive(Debug)]
pub struct MappedRegisters {
    mapping: Mapping,
}

impl MappedRegisters {
    /// Those of a region.
    pub fn new(mapping: Mapping) -> Self {
        Self { mapping }
    }

    /// # Panics
    /// If the register does not lie in the region. Whoever opens a device checks its size.
    fn address(&self, register: Register) -> *mut u8 {
        let bytes = register.bits as usize / 8;
        let end = register.at.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.mapping.bytes()),
            "{} at {:#x}",
            register.name,
            register.at
        );
        self.mapping.start().as_ptr().wrapping_add(register.at)
    }
}

impl Registers for MappedRegisters {
    fn read(&self, register: Register) -> u64 {
        let at = self.address(register);
        match register.bits {
            // SAFETY: inside the mapping and aligned, checked above and where registers are made.
            8 => u64::from(unsafe { at.read_volatile() }),
            // SAFETY: as above.
            16 => u64::from(unsafe { at.cast::<u16>().read_volatile() }),
            // SAFETY: as above.
            32 => u64::from(unsafe { at.cast::<u32>().read_volatile() }),
            // SAFETY: as above.
            _ => unsafe { at.cast::<u64>().read_volatile() },
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "bits above the register's are not written"
    )]
    fn write(&self, register: Register, value: u64) {
        let at = self.address(register);
        match register.bits {
            // SAFETY: inside the mapping and aligned, checked above and where registers are made.
            8 => unsafe { at.write_volatile(value as u8) },
            // SAFETY: as above.
            16 => unsafe { at.cast::<u16>().write_volatile(value as u16) },
            // SAFETY: as above.
            32 => unsafe { at.cast::<u32>().write_volatile(value as u32) },
            // SAFETY: as above.
            _ => unsafe { at.cast::<u64>().write_volatile(value) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_touches_its_register_and_nothing_else() {
        let registers = MappedRegisters::new(Mapping::private(4096).unwrap());
        let whole = Register::new("WHOLE", 0x40, 64);
        for (at, bits, value, found) in [
            (0x42, 8, 0x1_ab, 0xffff_ffff_ffab_ffff),
            (0x44, 16, 0x9_1234, 0xffff_1234_ffff_ffff),
            (0x40, 32, 0xf_0000_0001, 0xffff_ffff_0000_0001),
            (0x40, 64, 7, 7),
        ] {
            registers.write(whole, u64::MAX);
            let register = Register::new("PART", at, bits);
            registers.write(register, value);
            assert_eq!(registers.read(whole), found);
            assert_eq!(registers.read(register), value & register.ones());
        }
        assert_eq!(registers.read(Register::new("BEFORE", 0x38, 64)), 0);
        assert_eq!(registers.read(Register::new("AFTER", 0x48, 64)), 0);
    }

    #[test]
    #[should_panic(expected = "OUTSIDE at 0x1000")]
    fn nothing_outside_is_read() {
        let registers = MappedRegisters::new(Mapping::private(4096).unwrap());
        registers.read(Register::new("OUTSIDE", 0x1000, 32));
    }
}
