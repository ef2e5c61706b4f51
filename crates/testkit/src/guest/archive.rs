//! The archive that Linux takes its first root file system from: cpio in the "newc" format
//! (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst).

/// Header and name together, and content, end at multiples of this.
const ALIGNMENT: usize = 4;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// A folder that root may write to.
    pub fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER | 0o755, &[]);
    }

    /// A file that everybody may read and run.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, FILE | 0o755, content);
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK | 0o777, target.as_bytes());
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let name = path.trim_start_matches('/');
        let length = |bytes: usize| u32::try_from(bytes).expect("a file of less than 4 GiB");
        let (user, group, links, time, device) = (0, 0, 1, 0, 0);
        let (content_bytes, name_bytes) = (length(content.len()), length(name.len() + 1));
        let fields = [
            self.entries,
            mode,
            user,
            group,
            links,
            time,
            content_bytes,
            device,
            device,
            device,
            device,
            name_bytes,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, from the description of the format.
    #[test]
    fn an_entry_is_header_name_and_content_each_aligned() {
        let mut archive = Archive::default();
        archive.file("/a", b"xyz");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        let field = |index: usize| {
            let text = &bytes[6 + 8 * index..][..8];
            u32::from_str_radix(std::str::from_utf8(text).unwrap(), 16).unwrap()
        };
        let [mode, size, name_size] = [1, 6, 11].map(field);
        assert_eq!((mode, size, name_size), (0o100_755, 3, 2));
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..116], b"xyz\0");
        assert_eq!(&bytes[116..122], b"070701");
        assert!(bytes[116 + 110..].starts_with(b"TRAILER!!!\0"));
        assert_eq!(bytes.len() % ALIGNMENT, 0);
    }
}
