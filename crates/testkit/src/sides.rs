//! Where a scenario's server runs, and where its clients do: on one host, or on two.

use crate::rack::{ADDRESSES, POSTED, Plan, Rack, WINDOWS};
use crate::{Host, Route, Witness};

/// The two sides of a scenario. It is told once, and runs on one host natively and under
/// Crosslane, and between two hosts: [`on_all_routes!`](crate::on_all_routes).
pub struct Sides(Hosts);

enum Hosts {
    One(Box<Host>),
    Two(Box<Rack>),
}

/// Proves on each host that connections were accelerated; see [`Witness`].
pub struct Witnesses(Vec<Witness>);

impl Sides {
    /// Both on one host, with programs that reach each other by `route`.
    pub fn on_one_host(route: Route) -> Self {
        Self(Hosts::One(Box::new(Host::new(route))))
    }

    /// The server on one host and its clients on the other, with a window between them that every
    /// user of both may use.
    pub fn on_two_hosts() -> Self {
        Self::on_two("file")
    }

    /// The same, where each host has a memory of its own, which the other one only writes.
    pub fn over_posted_writes() -> Self {
        Self::on_two(POSTED)
    }

    fn on_two(kind: &'static str) -> Self {
        let anybody = Some("[[allow]]\n");
        let rack = Rack::with(&Plan {
            allow: [anybody; 2],
            kind,
            ..Plan::default()
        });
        rack.wait_for_window();
        Self(Hosts::Two(Box::new(rack)))
    }

    /// New hosts of the same kind.
    #[must_use]
    pub fn anew(&self) -> Self {
        match &self.0 {
            Hosts::One(host) => Self::on_one_host(host.route()),
            Hosts::Two(rack) => Self::on_two(rack.kind()),
        }
    }

    /// Both hosts.
    ///
    /// # Panics
    /// When there is one only.
    pub fn rack(&self) -> &Rack {
        match &self.0 {
            Hosts::One(_) => panic!("one host has no window"),
            Hosts::Two(rack) => rack,
        }
    }

    /// Where the server runs.
    pub fn server(&self) -> &Host {
        match &self.0 {
            Hosts::One(host) => host,
            Hosts::Two(rack) => &rack.hosts[0],
        }
    }

    /// Where its clients run.
    pub fn client(&self) -> &Host {
        match &self.0 {
            Hosts::One(host) => host,
            Hosts::Two(rack) => &rack.hosts[1],
        }
    }

    /// The address at which the server listens.
    pub fn address(&self) -> &'static str {
        match &self.0 {
            Hosts::One(_) => "127.0.0.1",
            Hosts::Two(_) => ADDRESSES[0],
        }
    }

    /// Watch the connections to and from `port` from now on. Between hosts, both monitors count; they
    /// share nothing but the window, so what went through rings there went through the window.
    pub fn witness(&self, port: u16) -> Witnesses {
        Witnesses(match &self.0 {
            Hosts::One(host) => vec![host.witness(port)],
            Hosts::Two(rack) => {
                let of = |host: &Host| host.witness(port).over(WINDOWS[0]);
                rack.hosts.iter().map(of).collect()
            }
        })
    }
}

impl Witnesses {
    /// As [`Witness::assert_accelerated`], on each host.
    ///
    /// # Panics
    /// When too little went through rings on one of them.
    pub fn assert_accelerated(self) {
        self.0.into_iter().for_each(Witness::assert_accelerated);
    }

    /// As [`Witness::assert_port_accelerated`], on each host.
    ///
    /// # Panics
    /// When too little of what was seen of the port went through rings on one of them.
    pub fn assert_port_accelerated(self) {
        self.0
            .into_iter()
            .for_each(Witness::assert_port_accelerated);
    }

    /// As [`Witness::assert_ring_share`], on each host.
    ///
    /// # Panics
    /// When it was less on one of them.
    pub fn assert_ring_share(self, least: f64) {
        self.0
            .into_iter()
            .for_each(|witness| witness.assert_ring_share(least));
    }
}
