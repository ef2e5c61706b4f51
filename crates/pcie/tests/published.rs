//! Every published number of the model, to its printed digits.

use crosslane_pcie::model::bandwidth::{rate, raw_gbps, tlp_gbps};
use crosslane_pcie::model::nic::{self, Design, Reading};
use crosslane_pcie::model::{Ethernet, Generation, LinkConfig, LinkSpec, Mix};

fn link(generation: u32, lanes: u32, mps_bytes: u32) -> LinkConfig {
    let generation = Generation::from_number(generation).unwrap();
    LinkConfig::new(LinkSpec {
        generation,
        lanes,
        mps_bytes,
        ..LinkSpec::default()
    })
    .unwrap()
}

#[track_caller]
fn printed(value: f64, expected: &str) {
    let digits = expected.split_once('.').map_or(0, |(_, d)| d.len());
    assert_eq!(format!("{value:.digits$}"), expected);
}

#[test]
fn link_rates() {
    printed(raw_gbps(&link(3, 8, 256)), "63.0154");
    printed(tlp_gbps(&link(3, 8, 256)), "57.8848");
    for (generation, lanes, mps, expected) in [
        (2, 8, 256, "28.676"),
        (3, 4, 256, "29.070"),
        (3, 16, 256, "113.700"),
        (4, 8, 256, "115.770"),
        (4, 16, 256, "227.400"),
        (5, 16, 256, "454.800"),
        (3, 8, 128, "56.666"),
        (3, 8, 512, "57.312"),
    ] {
        printed(tlp_gbps(&link(generation, lanes, mps)), expected);
    }
}

#[test]
fn bandwidth_table() {
    let gen3x8 = link(3, 8, 256);
    for (bytes, write, read, both, ethernet) in [
        (64, "42.098", "44.103", "33.077", "30.476"),
        (128, "48.745", "50.063", "42.098", "34.595"),
        (256, "52.923", "53.690", "48.745", "37.101"),
        (257, "48.775", "50.089", "45.217", "37.112"),
        (512, "52.923", "53.690", "50.748", "38.496"),
        (1024, "52.923", "53.690", "50.748", "39.234"),
        (1500, "52.815", "53.597", "50.599", "39.474"),
    ] {
        printed(rate(&gen3x8, Mix::Write, bytes).gbps, write);
        printed(rate(&gen3x8, Mix::Read, bytes).gbps, read);
        printed(rate(&gen3x8, Mix::ReadWrite, bytes).gbps, both);
        printed(Ethernet { line_gbps: 40.0 }.gbps(bytes), ethernet);
    }
}

#[test]
fn faster_links() {
    for (generation, write, read) in [
        (3, ["82.69", "103.95"], ["86.63", "105.46"]),
        (4, ["165.38", "207.91"], ["173.26", "210.92"]),
        (5, ["330.76", "415.82"], ["346.51", "421.84"]),
    ] {
        for (i, bytes) in [64, 512].into_iter().enumerate() {
            printed(
                rate(&link(generation, 16, 256), Mix::Write, bytes).gbps,
                write[i],
            );
            printed(
                rate(&link(generation, 16, 256), Mix::Read, bytes).gbps,
                read[i],
            );
        }
    }
}

#[track_caller]
fn nic_row(design: &Design, bytes: u32, expected: [&str; 3]) {
    let rate = design.rate(&link(3, 8, 256), bytes, Reading::AsPublished);
    printed(rate.bidirectional_gbps, expected[0]);
    printed(rate.tx_gbps, expected[1]);
    printed(rate.rx_gbps, expected[2]);
}

#[test]
fn nic_designs_as_published() {
    for (bytes, simple, kernel, dpdk) in [
        (
            64,
            ["12.584", "20.673", "19.733"],
            ["17.634", "23.231", "27.160"],
            ["20.649", "35.305", "28.009"],
        ),
        (
            256,
            ["31.169", "40.519", "39.638"],
            ["37.503", "42.714", "45.602"],
            ["40.497", "50.235", "46.161"],
        ),
        (
            512,
            ["39.312", "46.235", "45.379"],
            ["43.958", "47.620", "49.019"],
            ["45.932", "51.919", "49.338"],
        ),
        (
            1024,
            ["44.326", "49.699", "48.876"],
            ["47.123", "50.485", "50.904"],
            ["48.229", "52.793", "51.075"],
        ),
        (
            1500,
            ["46.061", "50.819", "49.997"],
            ["48.083", "51.377", "51.426"],
            ["48.863", "52.984", "51.545"],
        ),
    ] {
        nic_row(&nic::SIMPLE, bytes, simple);
        nic_row(&nic::KERNEL, bytes, kernel);
        nic_row(&nic::DPDK, bytes, dpdk);
    }
}

#[test]
fn nic_designs_corrected() {
    for (design, expected) in [
        (&nic::SIMPLE, "17.365"),
        (&nic::KERNEL, "22.868"),
        (&nic::DPDK, "23.467"),
    ] {
        printed(
            design
                .rate(&link(3, 8, 256), 64, Reading::Corrected)
                .rx_gbps,
            expected,
        );
    }
}

#[test]
fn designs_reach_forty_gigabit_at_the_published_sizes() {
    let port = Ethernet { line_gbps: 40.0 };
    for (design, from) in [(&nic::SIMPLE, 584), (&nic::KERNEL, 300), (&nic::DPDK, 182)] {
        let found = design.keeps_up_from(&link(3, 8, 256), port, 1518, Reading::AsPublished);
        assert_eq!(found, Some(from), "{}", design.name);
    }
}
