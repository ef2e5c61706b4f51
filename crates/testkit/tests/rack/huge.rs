//! Windows of large pages: files of a hugetlbfs, and one that stands in for a DAX device, which has such pages as a rule.

use crosslane_testkit::rack::{HUGE_PAGE_BYTES, HugePages, POSTED, Plan, Rack, can_run};
use crosslane_testkit::wait_until;

use crate::counters::{self, CONNECTIONS, COUNT_PORT};
use crate::{dax, endings, losses, programs};

/// A window's, and some more.
const ROOM: u64 = (64 << 20) + 4 * HUGE_PAGE_BYTES;

/// Room for so many bytes of windows, where two hosts can be made.
fn huge_pages(bytes: u64) -> Option<HugePages> {
    can_run().then(|| HugePages::mount(bytes)).flatten()
}

fn plan(huge: &HugePages, kind: &'static str) -> Plan {
    Plan {
        kind,
        folder: huge.folder().to_owned(),
        ..Plan::default()
    }
}

/// Two hosts with a window there, which is open.
fn rack(huge: &HugePages, kind: &'static str) -> Rack {
    let rack = Rack::with(&plan(huge, kind));
    rack.wait_for_window();
    rack
}

#[test]
fn redis_here_and_its_clients_there() {
    if let Some(huge) = huge_pages(ROOM) {
        programs::serve_redis_over(|| rack(&huge, "file"));
    }
}

#[test]
fn a_stream_ends_behind_all_its_bytes() {
    if let Some(huge) = huge_pages(ROOM) {
        endings::end_streams(&rack(&huge, "file"));
    }
}

/// The pages are gone, and a touch raises SIGBUS; every byte is checked.
#[test]
fn connections_leave_pages_that_are_gone_and_come_back_with_them() {
    if let Some(huge) = huge_pages(ROOM) {
        dax::take_and_give(&rack(&huge, "file"));
    }
}

/// As a device of pages of 2 MiB, which is mapped only, and never made.
#[test]
fn connections_use_dax_memory_of_large_pages() {
    if let Some(huge) = huge_pages(ROOM) {
        dax::take_and_give(&rack(&huge, "dax"));
    }
}

#[test]
fn no_byte_is_lost_doubled_or_reordered_whenever_the_window_goes() {
    if let Some(huge) = huge_pages(ROOM) {
        losses::lose_at_random(&rack(&huge, "file"), 20, 1);
    }
}

/// Where each host has a memory of its own, it may be of such pages, too.
#[test]
fn connections_post_into_large_pages() {
    if let Some(huge) = huge_pages(2 * ROOM) {
        losses::lose_windows(&rack(&huge, POSTED));
    }
}

/// Nobody touches what is not there.
#[test]
fn a_window_without_enough_pages_is_closed_and_says_what_to_do() {
    let Some(huge) = huge_pages(16 << 20) else {
        return;
    };
    let rack = Rack::with(&plan(&huge, "file"));
    let mut sides = counters::start(&rack, CONNECTIONS);
    // The owner opens it first, and offers it then.
    wait_until("the lack of pages to be told", || {
        let status = rack.status(0)["hosts"][0].to_string();
        let words = ["32 pages of 2097152 bytes", "nr_hugepages", "fewer bytes"];
        words.iter().all(|word| status.contains(word)).then_some(())
    });
    assert_eq!(rack.window(0).metadata().unwrap().len(), 0, "none is kept");
    counters::pauses(&mut sides, &rack, "by TCP");
    for at in [0, 1] {
        assert!(
            rack.ends(at, COUNT_PORT)
                .iter()
                .all(|end| !end.is_accelerated())
        );
        rack.rewrite(at, |text| {
            text.replace("bytes = 67108864", "bytes = 16777216")
        });
        rack.reload(at);
    }
    rack.wait_for_window();
    rack.wait_for_accelerated(COUNT_PORT, CONNECTIONS);
    counters::pauses(&mut sides, &rack, "in the window");
}
