use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::rack::config::{BeyondConfig, WindowKind};

/// A folder in memory, where windows are.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn config(path: &Path) -> WindowConfig {
    WindowConfig {
        name: "test".to_owned(),
        kind: WindowKind::File,
        path: path.to_owned(),
        offset: 0,
        beyond: None,
        bytes: 1 << 20,
        ring_bytes: 32 << 10,
        slots: 2,
        host: "beta".to_owned(),
        is_gone: false,
    }
}

#[test]
fn two_monitors_find_out_that_they_see_the_same_memory() {
    let folder = folder();
    let path = folder.path().join("window");
    let owner = Window::open(&config(&path)).unwrap();
    let mut guest = Window::open(&config(&path)).unwrap();
    let offer = owner.offer(77).unwrap();
    assert!(owner.confirm(77).is_err(), "not answered yet");
    guest.accept(&offer).unwrap();
    owner.confirm(77).unwrap();
    assert!(owner.confirm(78).is_err(), "an answer to another offer");
    let mut elsewhere = Window::open(&config(&folder.path().join("other"))).unwrap();
    assert!(matches!(
        elsewhere.accept(&offer),
        Err(WindowError::OtherMemory { .. })
    ));
}

#[test]
fn a_beat_shows_to_the_other_host_where_it_sees_the_same_memory() {
    let folder = folder();
    let path = folder.path().join("window");
    let owner = Window::open(&config(&path)).unwrap();
    let guest = Window::open(&config(&path)).unwrap();
    let elsewhere = Window::open(&config(&folder.path().join("other"))).unwrap();
    owner.beat(true, 77, 3).unwrap();
    guest.beat(false, 77, 9).unwrap();
    assert!(guest.shows_beat(true, 77, 3) && owner.shows_beat(false, 77, 9));
    assert!(guest.shows_beat(true, 77, 2), "a later one shows");
    assert!(!guest.shows_beat(true, 77, 4), "not written yet");
    assert!(!guest.shows_beat(true, 78, 3), "of another epoch");
    assert!(!elsewhere.shows_beat(true, 77, 3));
}

/// As the two hosts have them: what is the one's own is beyond for the other.
fn apart(folder: &Path) -> [WindowConfig; 2] {
    let paths = ["alpha", "beta"].map(|name| folder.join(name));
    [0, 1].map(|at| WindowConfig {
        kind: WindowKind::Posted,
        beyond: Some(BeyondConfig {
            path: paths[1 - at].clone(),
            offset: 0,
        }),
        ..config(&paths[at])
    })
}

#[test]
fn of_two_memories_each_monitor_writes_the_others_and_reads_its_own() {
    let folder = folder();
    let configs = apart(folder.path());
    let owner = Window::open(&configs[0]).unwrap();
    let mut guest = Window::open(&configs[1]).unwrap();
    let offer = owner.offer(77).unwrap();
    assert!(owner.confirm(77).is_err(), "not answered yet");
    guest.accept(&offer).unwrap();
    owner.confirm(77).unwrap();
    owner.beat(true, 77, 3).unwrap();
    guest.beat(false, 77, 9).unwrap();
    assert!(guest.shows_beat(true, 77, 3) && owner.shows_beat(false, 77, 9));
    assert!(
        !owner.shows_beat(true, 77, 3),
        "it is written to the other host"
    );
    assert!(owner.is_there() && guest.is_there());
    // Cut short, it is another's from then on, so that nobody writes into what comes in its place.
    let file = std::fs::File::options().write(true).open(&configs[1].path);
    file.unwrap().set_len(0).unwrap();
    assert!(!owner.is_there() && !guest.is_there());
    let mut again = Window::open(&configs[1]).unwrap();
    assert!(
        again.accept(&offer).is_err(),
        "nothing has been written there"
    );
    let owner = Window::open(&configs[0]).unwrap();
    again.accept(&owner.offer(78).unwrap()).unwrap();
    owner.confirm(78).unwrap();
}

#[test]
fn a_region_is_used_while_its_device_is_enabled() {
    let folder = folder();
    let region = folder.path().join("resource2_wc");
    assert!(beyond::is_enabled(&region), "nothing is said");
    for (said, is_enabled) in [("0\n", false), ("1\n", true), ("2\n", true)] {
        std::fs::write(folder.path().join("enable"), said).unwrap();
        assert_eq!(beyond::is_enabled(&region), is_enabled, "{said}");
    }
}

#[test]
fn a_guest_clears_its_own_memory_of_what_is_asked_about_and_in_no_use() {
    let folder = folder();
    let configs = apart(folder.path());
    let owner = Window::open(&configs[0]).unwrap();
    let mut guest = Window::open(&configs[1]).unwrap();
    guest.accept(&owner.offer(1).unwrap()).unwrap();
    assert!(guest.parts() >= 3);
    let at = |part| usize::try_from(guest.offset_of(part).unwrap()).unwrap();
    let written = [0, 1, 2].map(at);
    let mut bytes = std::fs::read(&configs[1].path).unwrap();
    written.iter().for_each(|at| bytes[*at] = 7);
    std::fs::write(&configs[1].path, &bytes).unwrap();
    let held = guest.hold(0).unwrap();
    assert_eq!(
        guest.clear_parts(&[0b011])[0] & 0b111,
        0b001,
        "the first is in use"
    );
    let found = std::fs::read(&configs[1].path).unwrap();
    assert_eq!(written.map(|at| found[at]), [7, 0, 7]);
    drop(held);
    let (_fd, offset, posting) = owner.beyond(1).unwrap().unwrap();
    assert_eq!(
        (offset, posting),
        (guest.offset_of(1).unwrap(), Posting::Memory)
    );
}

#[test]
fn a_shape_that_does_not_fit_is_refused() {
    let folder = folder();
    let path = folder.path().join("window");
    let owner = Window::open(&config(&path)).unwrap();
    let offer = owner.offer(1).unwrap();
    let mut guest = Window::open(&config(&path)).unwrap();
    let of = |change: &dyn Fn(&mut WindowOffer)| {
        let mut wrong = offer.clone();
        change(&mut wrong);
        wrong
    };
    for wrong in [
        of(&|offer| offer.bytes = 2 << 20),
        of(&|offer| offer.bytes = 4096),
        of(&|offer| offer.ring_lines = 7),
        of(&|offer| offer.slots = 4096),
        // A page of which the header alone would fill the window, and what no page can be.
        of(&|offer| offer.page_bytes = 1 << 20),
        of(&|offer| offer.page_bytes = 2048),
        of(&|offer| offer.page_bytes = 4096 + 64),
        of(&|offer| offer.page_bytes = 0),
        of(&|offer| offer.page_bytes = u32::MAX),
    ] {
        // A host that lies says the same in the header.
        owner.write(0, &record(&wrong)).unwrap();
        let refused = guest.accept(&wrong);
        assert!(
            matches!(refused, Err(WindowError::Shape { .. })),
            "{wrong:?}"
        );
        assert_eq!(guest.layout, guest.own);
    }
    let larger = of(&|offer| offer.page_bytes = 1 << 16);
    owner.write(0, &record(&larger)).unwrap();
    guest.accept(&larger).unwrap();
    assert_eq!(guest.offset_of(0), Some(1 << 16));
}

#[test]
fn a_part_is_held_by_its_descriptor_and_cleared_without_its_neighbours() {
    let folder = folder();
    let path = folder.path().join("window");
    let (window, other) = (
        Window::open(&config(&path)).unwrap(),
        Window::open(&config(&path)).unwrap(),
    );
    let held = window.hold(1).unwrap();
    assert!(other.is_held(1) && !other.is_held(0));
    assert_eq!(other.parts_held()[0], 0b10);
    drop(held);
    assert!(!other.is_held(1));
    assert!(other.is_held(1000), "what is not there is not free");
    assert!(window.hold(1000).is_err());
    let (first, second) = (window.offset_of(1).unwrap(), window.offset_of(2).unwrap());
    window.file.write_all_at(&[7], first - 1).unwrap();
    window.file.write_all_at(&[7], first).unwrap();
    window.file.write_all_at(&[7], second).unwrap();
    assert!(window.clear_part(1));
    let mut bytes = [1; 1];
    for (at, expected) in [(first - 1, 7), (first, 0), (second, 7)] {
        other.file.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(bytes, [expected]);
    }
}

#[test]
fn regions_and_dax_memory_are_mapped_and_neither_made_nor_lengthened() {
    is_mapped_and_neither_made_nor_lengthened(WindowKind::Bar);
    is_mapped_and_neither_made_nor_lengthened(WindowKind::Dax);
}

/// A file in the place of a region or of DAX memory: all can be mapped.
fn is_mapped_and_neither_made_nor_lengthened(kind: WindowKind) {
    let folder = folder();
    let path = folder.path().join("resource2");
    let region = WindowConfig {
        kind,
        ..config(&path)
    };
    assert!(Window::open(&region).is_err(), "it is not there");
    assert!(!path.exists());
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .unwrap();
    file.set_len(region.bytes - 4096).unwrap();
    assert!(matches!(
        Window::open(&region),
        Err(WindowError::Short { .. })
    ));
    file.set_len(region.bytes).unwrap();
    let owner = Window::open(&region).unwrap();
    let mut guest = Window::open(&config(&path)).unwrap();
    let offer = owner.offer(5).unwrap();
    guest.accept(&offer).unwrap();
    owner.confirm(5).unwrap();
    let (at, end) = (owner.offset_of(1).unwrap(), owner.offset_of(2).unwrap());
    file.write_all_at(&[7; 2], at - 1).unwrap();
    file.write_all_at(&[7; 2], end - 1).unwrap();
    assert!(owner.clear_part(1));
    let mut bytes = [1; 2];
    guest.file.read_exact_at(&mut bytes, at - 1).unwrap();
    assert_eq!(bytes, [7, 0]);
    guest.file.read_exact_at(&mut bytes, end - 1).unwrap();
    assert_eq!(bytes, [0, 7]);
}

/// Whoever still maps a file that was cut short must not see it come back full of zeroes.
#[test]
fn a_file_that_was_cut_short_is_replaced_while_somebody_holds_it() {
    let folder = folder();
    let path = folder.path().join("window");
    let before = Window::open(&config(&path)).unwrap();
    before.offer(1).unwrap();
    assert!(before.is_there());
    let held = before.hold(1).unwrap();
    before.file.set_len(0).unwrap();
    assert!(!before.is_there());
    let after = Window::open(&config(&path)).unwrap();
    after.offer(2).unwrap();
    assert!(after.is_there() && !before.is_there());
    assert_eq!(before.file.metadata().unwrap().len(), 0);
    assert!(before.is_held(1) && !after.is_held(1));
    drop(held);
}

#[test]
fn a_file_that_nobody_holds_is_lengthened() {
    let folder = folder();
    let path = folder.path().join("window");
    let before = Window::open(&config(&path)).unwrap();
    before.file.set_len(0).unwrap();
    let after = Window::open(&config(&path)).unwrap();
    let number = |window: &Window| window.file.metadata().unwrap().ino();
    assert_eq!(number(&before), number(&after));
}

/// Any other character device stands in for one that sysfs does not know.
#[test]
fn a_device_is_dax_or_refused() {
    let null = |kind| WindowConfig {
        kind,
        ..config(Path::new("/dev/zero"))
    };
    for kind in [WindowKind::File, WindowKind::Bar, WindowKind::Dax] {
        let error = Window::open(&null(kind)).unwrap_err().to_string();
        assert!(error.contains("/dev/zero"), "{error}");
    }
}

/// Whether it is written into rack.toml by hand or by the command, which looks itself.
#[test]
fn a_file_that_is_not_in_memory_is_refused() {
    let folder = folder();
    let (memory, disk) = (folder.path().join("window"), Path::new("/proc/window"));
    let beyond = |path: &Path| BeyondConfig {
        path: path.to_owned(),
        offset: 0,
    };
    let posted = |own: &Path, other: &Path| WindowConfig {
        kind: WindowKind::Posted,
        beyond: Some(beyond(other)),
        ..config(own)
    };
    for config in [config(disk), posted(disk, &memory), posted(&memory, disk)] {
        let error = Window::open(&config).unwrap_err();
        assert!(
            matches!(&error, WindowError::Disk { path } if path == disk),
            "{error}"
        );
    }
    assert!(!memory.exists(), "nothing is made");
}

/// Their parts could not be cleared. The kernel's answer is played: such a file system may not be mounted here.
#[test]
fn a_file_of_memory_that_cannot_be_cleared_in_parts_is_refused() {
    let path = Path::new("/mnt/ram/window");
    let (tmpfs, hugetlbfs, ramfs, ext4) = (0x0102_1994, 0x9584_58f6, 0x8584_58f6, 0xef53);
    for is_device in [false, true] {
        let said = memory::judge(path, ramfs, is_device).unwrap_err();
        let said = said.to_string();
        for word in ["/mnt/ram/window", "ramfs", "name a file in tmpfs"] {
            assert!(said.contains(word), "{said}");
        }
    }
    assert!(memory::judge(path, tmpfs, false).is_ok());
    assert!(memory::judge(path, hugetlbfs, false).is_ok());
    assert!(memory::judge(path, ext4, true).is_ok(), "DAX memory");
    let disk = memory::judge(path, ext4, false);
    assert!(matches!(disk, Err(WindowError::Disk { .. })), "{disk:?}");
}

#[test]
fn a_file_that_others_may_use_is_refused() {
    let folder = folder();
    let path = folder.path().join("window");
    std::fs::write(&path, b"").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o660)).unwrap();
    assert!(matches!(
        Window::open(&config(&path)),
        Err(WindowError::Unsafe { mode: 0o660, .. })
    ));
}

mod pages;
