//! The ready profiles.
//!
//! Public facts: links, cache sizes (25, 15, 15 and 8 MB; DDIO fills 2 of 20 ways), and how memory is
//! refreshed: every 7.8 us, for 350 ns in chips of 8 Gb and 260 ns in those of 4 Gb (JEDEC JESD79-4;
//! which chips a machine has shows in the longest cold reads). The rest is
//! fitted on the measurements of E5-2630v4 and E3-1226v3 that docs/pcie.md names row by row. The
//! other two E5 are E5-2630v4 with their own cache and one number of theirs, their mean 64 B read
//! from a warm 8 KiB window, which sets `read_ns`; how they split short reads comes from E3-1226v3.

use super::{Credits, Device, Host, Iommu, Link, Sleep};

/// A ready profile: its name and how to make it.
pub type Named = (&'static str, fn() -> Host);

/// Every ready host.
pub const HOSTS: &[Named] = &[
    ("e5-2630v4", e5_2630v4),
    ("e5-2637v3", e5_2637v3),
    ("e5-2620v3", e5_2620v3),
    ("e3-1226v3", e3_1226v3),
];

/// A ready device: its name and how to make it.
pub type NamedDevice = (&'static str, fn() -> Device);

/// Every ready device.
pub const DEVICES: &[NamedDevice] = &[("nfp-6000", nfp6000), ("ideal", ideal)];

/// The names, for messages.
#[must_use]
pub fn host_names() -> String {
    HOSTS
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

const MIB: u64 = 1 << 20;

fn gen3_x8(tlp_share: f64) -> Link {
    Link {
        generation: 3,
        lanes: 8,
        mps_bytes: 256,
        mrrs_bytes: 512,
        rcb_bytes: 64,
        tlp_share,
        write_dllp_bytes: 16,
        address_bits: 64,
        ecrc: false,
        split_at_rcb: false,
    }
}

fn e5_2630v4() -> Host {
    Host {
        name: "e5-2630v4".to_owned(),
        source: "Broadwell, Dell T430; fitted on its published measurements".to_owned(),
        link: gen3_x8(0.952),
        read_ns: 301.5,
        write_line_ns: 8.6,
        read_line_ns: 0.0,
        completion_bytes: 256,
        completion_gap_ns: 1.0,
        write_ns: 20.0,
        cold_ns: 44.0,
        refresh_ns: 350.0,
        refresh_every_ns: 7800.0,
        nodes: 2,
        remote_node_ns: 107.0,
        jitter_ns: 12.0,
        llc_bytes: 25 * MIB,
        ddio_bytes: 25 * MIB / 10,
        line_by_line_bytes: 256,
        streams: true,
        line_mode_lasts: 0,
        line_gap_ns: 0.0,
        half_pair_gap_ns: 0.0,
        posted: Credits {
            headers: 64,
            data_units: 1024,
        },
        nonposted_headers: 64,
        iommu: vt_d(),
        sleep: None,
    }
}

fn vt_d() -> Iommu {
    Iommu {
        entries: 64,
        walker_entries: 117,
        page_bytes: 4096,
        walk_ns: 288.0,
        read_port_ns: 45.8,
        read_walk_slot_ns: 52.0,
        again_ns: 11.5,
        write_port_ns: 4.0,
        write_walk_slot_ns: 46.5,
    }
}

/// How Haswell answers short reads, as E3-1226v3 shows it.
fn haswell(base: Host) -> Host {
    Host {
        line_by_line_bytes: 448,
        streams: false,
        line_mode_lasts: 1,
        half_pair_gap_ns: 3.5,
        refresh_ns: 260.0,
        ..base
    }
}

fn e5_2637v3() -> Host {
    let base = e5_2630v4();
    Host {
        name: "e5-2637v3".to_owned(),
        source: "Haswell, Supermicro; e5-2630v4 with its cache size and its median 64 B warm read"
            .to_owned(),
        read_ns: base.read_ns + (597.0 - 557.0),
        llc_bytes: 15 * MIB,
        ddio_bytes: 15 * MIB / 10,
        ..haswell(base)
    }
}

fn e5_2620v3() -> Host {
    let base = e5_2630v4();
    Host {
        name: "e5-2620v3".to_owned(),
        source: "Haswell; e5-2630v4 with its cache size and its median 64 B warm read".to_owned(),
        read_ns: base.read_ns + (547.0 - 557.0),
        llc_bytes: 15 * MIB,
        ddio_bytes: 15 * MIB / 10,
        ..haswell(base)
    }
}

fn e3_1226v3() -> Host {
    let base = e5_2630v4();
    Host {
        name: "e3-1226v3".to_owned(),
        source: "Haswell client part, Fujitsu TX1310; fitted on its published measurements"
            .to_owned(),
        completion_bytes: 128,
        read_line_ns: 4.0,
        line_mode_lasts: 0,
        line_gap_ns: 10.0,
        read_ns: base.read_ns - 14.0,
        nodes: 1,
        remote_node_ns: 0.0,
        // Its 8 MB of cache do not serve the device: warm reads wait for refreshes of the memory too.
        cold_ns: 0.0,
        llc_bytes: 0,
        ddio_bytes: 0,
        sleep: Some(Sleep {
            after_idle_ns: 60.0,
            awake_share: 0.007,
            period_ns: 610.0,
            spread_ns: 90.0,
            first_success: 0.64,
            later_success: 0.46,
            interrupted_share: 0.067,
            interrupted_per_us: 0.506,
            deep_every_ns: 1_100_000.0,
            deep_every_spread: 1.0,
            deep_ns: 2_007_000.0,
            deep_mean_extra_ns: 6_000.0,
            deep_again_share: 0.11,
        }),
        ..haswell(base)
    }
}

/// The Netronome NFP-6000 at 1.2 GHz that measured all of the hosts.
#[must_use]
pub fn nfp6000() -> Device {
    Device {
        name: "nfp-6000".to_owned(),
        tick_ns: 16.0 / 1.2,
        issue_ns: 150.0,
        retire_ns: 72.0,
        contexts: 21,
        read_ns_per_byte: 0.2787,
        write_ns_per_byte: 0.094,
        write_to_read_ns: 205.0,
        read_after_write_ns: 73.0,
        write_gap_ns: 21.1,
        packet_gap_ns: 14.7,
        write_bubble_ns: 3.0,
        power_of_two_tail: true,
        partial_ns: 23.7,
        request_gap_ns: 7.0,
        shared_ns_per_byte: 0.187,
        shared_beyond_ns_per_byte: 0.12,
    }
}

/// A device that adds nothing to what the link and the host take: what is left is theirs.
#[must_use]
pub fn ideal() -> Device {
    Device {
        name: "ideal".to_owned(),
        tick_ns: 0.001,
        issue_ns: 0.0,
        retire_ns: 0.0,
        contexts: 1024,
        read_ns_per_byte: 0.0,
        write_ns_per_byte: 0.0,
        write_to_read_ns: 0.0,
        read_after_write_ns: 0.0,
        write_gap_ns: 0.0,
        packet_gap_ns: 0.0,
        write_bubble_ns: 0.0,
        power_of_two_tail: false,
        partial_ns: 0.0,
        request_gap_ns: 0.0,
        shared_ns_per_byte: 0.0,
        shared_beyond_ns_per_byte: 0.0,
    }
}
