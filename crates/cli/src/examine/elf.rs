//! What an ELF file says about how it is loaded. Any bytes may come: nothing here trusts them.

use object::elf::{
    ELFCLASS32, ELFMAG, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP, PT_LOAD, ProgramHeader64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, Object, ReadRef};

use super::Cause;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = object::elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = object::elf::EM_AARCH64;

type Header = FileHeader64<Endianness>;
type Segment = ProgramHeader64<Endianness>;

/// Whether a file with these contents can be preloaded, privileges aside.
pub fn judge<'d>(data: impl ReadRef<'d>) -> Cause {
    match data.read_bytes_at(0, 5) {
        Ok(&[a, b, c, d, class]) if [a, b, c, d] == ELFMAG => {
            if class == ELFCLASS32 {
                return Cause::OtherArchitecture;
            }
        }
        _ => return Cause::NotAProgram,
    }
    judge_elf(data).unwrap_or(Cause::NotAProgram)
}

/// Whether the loader can load a file with these contents into a program.
pub fn is_shared_library<'d>(data: impl ReadRef<'d>) -> bool {
    is_whole_library(data).unwrap_or(false)
}

fn is_whole_library<'d>(data: impl ReadRef<'d>) -> object::Result<bool> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    if !header.is_class_64()
        || header.e_machine(endian) != MACHINE
        || header.e_type(endian) != ET_DYN
        || loader(header, endian, data)?.is_some()
    {
        return Ok(false);
    }
    let segments = header.program_headers(endian, data)?;
    let mut loaded = segments.iter().filter(|it| it.p_type(endian) == PT_LOAD);
    // What has been cut off shows at the end of the last.
    let is_whole = |it: &Segment| it.data(endian, data).is_ok();
    Ok(loaded.clone().next().is_some() && loaded.all(is_whole))
}

fn judge_elf<'d>(data: impl ReadRef<'d>) -> object::Result<Cause> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    if header.e_machine(endian) != MACHINE {
        return Ok(Cause::OtherArchitecture);
    }
    if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
        return Ok(Cause::NotAProgram);
    }
    if is_go(data)? {
        return Ok(Cause::Go);
    }
    let Some(loader) = loader(header, endian, data)? else {
        return Ok(Cause::Static);
    };
    if !is_glibc_loader(loader) {
        return Ok(Cause::OtherLibc);
    }
    let uses_liburing = needed(header, endian, data)?
        .iter()
        .any(|library| library.starts_with(b"liburing"));
    Ok(if uses_liburing {
        Cause::IoUring
    } else {
        Cause::Dynamic
    })
}

fn is_go<'d>(data: impl ReadRef<'d>) -> object::Result<bool> {
    let file = object::File::parse(data)?;
    Ok([".go.buildinfo", ".note.go.buildid", ".gopclntab"]
        .iter()
        .any(|name| file.section_by_name(name).is_some()))
}

/// The program that loads this one, without its final NUL; a static program has none.
fn loader<'d>(
    header: &Header,
    endian: Endianness,
    data: impl ReadRef<'d>,
) -> object::Result<Option<&'d [u8]>> {
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == PT_INTERP {
            let path = segment.data(endian, data).unwrap_or_default();
            return Ok(Some(path.strip_suffix(b"\0").unwrap_or(path)));
        }
    }
    Ok(None)
}

fn is_glibc_loader(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.starts_with(b"ld-linux") || name.starts_with(b"ld.so") || name.starts_with(b"ld64.so")
}

/// Libraries that the file names.
fn needed<'d>(
    header: &Header,
    endian: Endianness,
    data: impl ReadRef<'d>,
) -> object::Result<Vec<&'d [u8]>> {
    let sections = header.sections(endian, data)?;
    let Some((entries, strings)) = sections.dynamic(endian, data)? else {
        return Ok(Vec::new());
    };
    let strings = sections.strings(endian, data, strings)?;
    entries
        .iter()
        .filter(|entry| entry.tag(endian) == object::elf::DT_NEEDED)
        .map(|entry| entry.string(endian, strings))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_it_panic() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let head = &own[..own.len().min(8192)];
        for end in (0..head.len()).step_by(7) {
            let _ = judge(&head[..end]);
            let _ = is_shared_library(&head[..end]);
        }
        let mut twisted = head.to_vec();
        for at in 0..512.min(twisted.len()) {
            for value in [0, 1, 0x7f, 0xff] {
                let before = std::mem::replace(&mut twisted[at], value);
                let _ = judge(twisted.as_slice());
                let _ = is_shared_library(twisted.as_slice());
                twisted[at] = before;
            }
        }
    }

    #[test]
    fn what_is_no_elf_file_is_told_so() {
        for data in [
            &b""[..],
            b"text",
            b"\x7fELF",
            b"\x7fELF\x02\x01\x01\0\0\0\0\0",
        ] {
            assert_eq!(judge(data), Cause::NotAProgram);
        }
    }

    #[test]
    fn a_library_is_whole_and_no_program() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let paths = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5));
        let library = paths.into_iter().find(|path| path.contains("libgcc_s"));
        let data = std::fs::read(library.expect("the test is linked with libgcc_s")).unwrap();
        assert!(is_shared_library(data.as_slice()));
        assert!(!is_shared_library(&data[..data.len() / 2]));
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert!(!is_shared_library(program.as_slice()));
        assert!(!is_shared_library(&b"text"[..]));
    }

    #[test]
    fn loaders_are_told_apart() {
        assert!(is_glibc_loader(b"/lib64/ld-linux-x86-64.so.2"));
        assert!(is_glibc_loader(b"/nix/store/x/lib/ld-linux-aarch64.so.1"));
        assert!(!is_glibc_loader(b"/lib/ld-musl-x86_64.so.1"));
        assert!(!is_glibc_loader(b"/system/bin/linker64"));
    }
}
