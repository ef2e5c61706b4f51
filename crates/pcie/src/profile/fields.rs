//! What each number of a host may be.

use super::number::{Field, Legal, Number, real, whole};
use super::{Host, Sleep};
use crate::model::config::{COMPLETION_BOUNDARIES, PAYLOAD_SIZES, WIDTHS};

const TIME: Legal = Legal::Real(0.0, 1e9, "ns");
const SHARE: Legal = Legal::Real(0.0, 1.0, "");
/// Wake-ups have to end, and in a time that can be counted.
const CHANCE: Legal = Legal::Real(0.01, 1.0, "");
const COUNT: Legal = Legal::Whole(1, u32::MAX as u64);
const ANY: Legal = Legal::Whole(0, u32::MAX as u64);
const ENTRIES: Legal = Legal::Whole(1, 65_536);
const CACHE: Legal = Legal::Whole(0, 4 << 30);

fn of_sleep(host: &Host, value: fn(&Sleep) -> f64) -> Option<Number> {
    host.sleep.as_ref().map(|sleep| Number::Real(value(sleep)))
}

/// Those whose range does not depend on another.
pub(super) const FIELDS: &[Field<Host>] = &[
    (
        "link.generation",
        |h| whole(h.link.generation),
        Legal::Whole(1, 7),
    ),
    ("link.lanes", |h| whole(h.link.lanes), Legal::OneOf(&WIDTHS)),
    (
        "link.mps_bytes",
        |h| whole(h.link.mps_bytes),
        Legal::OneOf(&PAYLOAD_SIZES),
    ),
    (
        "link.mrrs_bytes",
        |h| whole(h.link.mrrs_bytes),
        Legal::OneOf(&PAYLOAD_SIZES),
    ),
    (
        "link.rcb_bytes",
        |h| whole(h.link.rcb_bytes),
        Legal::OneOf(&COMPLETION_BOUNDARIES),
    ),
    (
        "link.tlp_share",
        |h| real(h.link.tlp_share),
        Legal::Real(0.1, 1.0, ""),
    ),
    (
        "link.write_dllp_bytes",
        |h| whole(h.link.write_dllp_bytes),
        Legal::Whole(0, 4096),
    ),
    (
        "link.address_bits",
        |h| whole(h.link.address_bits),
        Legal::OneOf(&[32, 64]),
    ),
    ("read_ns", |h| real(h.read_ns), TIME),
    ("write_ns", |h| real(h.write_ns), TIME),
    ("write_line_ns", |h| real(h.write_line_ns), TIME),
    ("read_line_ns", |h| real(h.read_line_ns), TIME),
    ("completion_gap_ns", |h| real(h.completion_gap_ns), TIME),
    ("line_gap_ns", |h| real(h.line_gap_ns), TIME),
    ("half_pair_gap_ns", |h| real(h.half_pair_gap_ns), TIME),
    ("cold_ns", |h| real(h.cold_ns), TIME),
    ("refresh_ns", |h| real(h.refresh_ns), TIME),
    ("refresh_every_ns", |h| real(h.refresh_every_ns), TIME),
    ("remote_node_ns", |h| real(h.remote_node_ns), TIME),
    ("jitter_ns", |h| real(h.jitter_ns), TIME),
    ("iommu.walk_ns", |h| real(h.iommu.walk_ns), TIME),
    (
        "iommu.read_walk_slot_ns",
        |h| real(h.iommu.read_walk_slot_ns),
        TIME,
    ),
    ("iommu.read_port_ns", |h| real(h.iommu.read_port_ns), TIME),
    (
        "iommu.write_walk_slot_ns",
        |h| real(h.iommu.write_walk_slot_ns),
        TIME,
    ),
    ("iommu.write_port_ns", |h| real(h.iommu.write_port_ns), TIME),
    ("iommu.again_ns", |h| real(h.iommu.again_ns), TIME),
    ("completion_bytes", |h| whole(h.completion_bytes), COUNT),
    ("nodes", |h| whole(h.nodes), Legal::OneOf(&[1, 2])),
    ("llc_bytes", |h| whole(h.llc_bytes), CACHE),
    ("ddio_bytes", |h| whole(h.ddio_bytes), CACHE),
    ("line_by_line_bytes", |h| whole(h.line_by_line_bytes), ANY),
    ("line_mode_lasts", |h| whole(h.line_mode_lasts), ANY),
    ("posted.headers", |h| whole(h.posted.headers), COUNT),
    ("posted.data_units", |h| whole(h.posted.data_units), COUNT),
    ("nonposted_headers", |h| whole(h.nonposted_headers), COUNT),
    ("iommu.entries", |h| whole(h.iommu.entries), ENTRIES),
    (
        "iommu.walker_entries",
        |h| whole(h.iommu.walker_entries),
        ENTRIES,
    ),
    (
        "iommu.page_bytes",
        |h| whole(h.iommu.page_bytes),
        Legal::Power(4096, 1 << 30),
    ),
    (
        "sleep.after_idle_ns",
        |h| of_sleep(h, |s| s.after_idle_ns),
        TIME,
    ),
    ("sleep.period_ns", |h| of_sleep(h, |s| s.period_ns), TIME),
    ("sleep.spread_ns", |h| of_sleep(h, |s| s.spread_ns), TIME),
    ("sleep.deep_ns", |h| of_sleep(h, |s| s.deep_ns), TIME),
    (
        "sleep.deep_mean_extra_ns",
        |h| of_sleep(h, |s| s.deep_mean_extra_ns),
        TIME,
    ),
    (
        "sleep.deep_every_ns",
        |h| of_sleep(h, |s| s.deep_every_ns),
        Legal::Real(1.0, 1e9, "ns"),
    ),
    (
        "sleep.deep_every_spread",
        |h| of_sleep(h, |s| s.deep_every_spread),
        Legal::Real(0.0, 3.0, ""),
    ),
    (
        "sleep.awake_share",
        |h| of_sleep(h, |s| s.awake_share),
        SHARE,
    ),
    (
        "sleep.interrupted_share",
        |h| of_sleep(h, |s| s.interrupted_share),
        SHARE,
    ),
    (
        "sleep.interrupted_per_us",
        |h| of_sleep(h, |s| s.interrupted_per_us),
        Legal::Real(0.0, 1e3, ""),
    ),
    (
        "sleep.first_success",
        |h| of_sleep(h, |s| s.first_success),
        CHANCE,
    ),
    (
        "sleep.later_success",
        |h| of_sleep(h, |s| s.later_success),
        CHANCE,
    ),
    (
        "sleep.deep_again_share",
        |h| of_sleep(h, |s| s.deep_again_share),
        Legal::Real(0.0, 0.99, ""),
    ),
];
