//! Windows whose pages are larger than usual. Their memory is played: what counts is where parts begin.

use super::*;

const HUGE: u64 = 2 << 20;

fn huge() -> Pages {
    Pages::of(HUGE).unwrap()
}

/// As the usual small window, of so many bytes.
fn of_bytes(bytes: u64) -> WindowConfig {
    WindowConfig {
        bytes,
        slots: 8,
        ..config(Path::new("/mnt/huge/window"))
    }
}

#[test]
fn the_header_and_each_part_begin_on_a_page_and_have_whole_ones() {
    let layout = Layout::of(&of_bytes(16 << 20), huge()).unwrap();
    let small = Layout::of(&of_bytes(16 << 20), Pages::SMALL).unwrap();
    assert_eq!(small.part_bytes(), 589_824);
    assert_eq!((layout.header_bytes(), layout.part_bytes()), (HUGE, HUGE));
    assert_eq!((layout.parts(), small.parts()), (7, 28));
    let offsets: Vec<_> = (0..8).map(|part| layout.offset_of(part)).collect();
    let expected = (1..8).map(|page| Some(page * HUGE)).chain([None]);
    assert_eq!(offsets, expected.collect::<Vec<_>>());
    // An arena that takes more than four pages has five.
    let long = WindowConfig {
        ring_bytes: 256 << 10,
        slots: 16,
        ..of_bytes(256 << 20)
    };
    let layout = Layout::of(&long, huge()).unwrap();
    assert_eq!(layout.part_bytes(), 5 * HUGE);
    assert_eq!((layout.parts(), layout.offset_of(1)), (25, Some(6 * HUGE)));
}

#[test]
fn the_last_part_ends_within_the_window() {
    for bytes in [2 * HUGE, 3 * HUGE - 1, 3 * HUGE, 67 * HUGE + 4096] {
        let layout = Layout::of(&of_bytes(bytes), huge()).unwrap();
        let last = layout.offset_of(layout.parts() - 1).unwrap();
        assert!(last + layout.part_bytes() <= layout.bytes && layout.bytes <= bytes);
        assert!(huge().begin_at(layout.bytes) && huge().begin_at(last));
    }
}

#[test]
fn a_window_that_does_not_suit_its_pages_is_refused() {
    let few = Layout::of(&of_bytes(2 * HUGE - 1), huge()).unwrap_err();
    let said = few.to_string();
    for word in ["4194303 bytes", "pages of 2097152", "4194304 are the least"] {
        assert!(said.contains(word), "{said}");
    }
    let shifted = WindowConfig {
        offset: 4096,
        ..of_bytes(8 * HUGE)
    };
    let said = Layout::of(&shifted, huge()).unwrap_err().to_string();
    assert!(said.contains("begins at byte 4096"), "{said}");
    let beyond = WindowConfig {
        beyond: Some(BeyondConfig {
            path: "/mnt/huge/beyond".into(),
            offset: 8192,
        }),
        ..of_bytes(8 * HUGE)
    };
    let said = Layout::of(&beyond, huge()).unwrap_err().to_string();
    assert!(said.contains("begins at byte 8192"), "{said}");
}

#[test]
fn what_another_host_offers_is_cut_on_the_larger_pages() {
    let config = of_bytes(16 << 20);
    let [small, large] = [Pages::SMALL, huge()].map(|pages| Layout::of(&config, pages).unwrap());
    let offered = |layout: &Layout| Layout::offered(&layout.offer("test", 1)).unwrap();
    assert_eq!(offered(&large), large);
    assert!(offered(&large).fits(&small, &config));
    assert!(offered(&large).fits(&large, &config));
    assert!(
        !offered(&small).fits(&large, &config),
        "parts would begin within a page"
    );
    let longer = Layout::of(&of_bytes(18 << 20), huge()).unwrap();
    assert!(!offered(&longer).fits(&large, &config));
    // Its own file has smaller pages, so that it may begin where no large one does.
    let shifted = WindowConfig {
        offset: 4096,
        ..config
    };
    assert!(!offered(&large).fits(&small, &shifted));
}

/// sysfs is played.
#[test]
fn the_pages_of_a_dax_device_are_what_sysfs_says() {
    let folder = folder();
    let device = Path::new("/dev/zero");
    let said = folder.path().join("zero");
    std::fs::create_dir(&said).unwrap();
    for (align, pages) in [
        ("4096\n", Some(4096)),
        ("2097152\n", Some(HUGE)),
        ("7\n", None),
    ] {
        std::fs::write(said.join("align"), align).unwrap();
        let found = memory::pages_of(device, folder.path()).ok();
        assert_eq!(found.map(Pages::bytes), pages, "{align}");
    }
    let file = folder.path().join("window");
    let of_file = memory::pages_of(&file, folder.path());
    assert_eq!(of_file.unwrap(), Pages::SMALL, "it will be made in tmpfs");
}
