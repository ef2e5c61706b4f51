//! Queries of the command, answered a piece at a time as the command reads.

use crosslane_ctl::message::{MonitorMessage, Query};

use super::Monitor;
use crate::connection::{Connection, Said};
use crate::report::{Answer, MonitorReport, OtherHosts, Step, World};

impl Monitor {
    /// Go on with answers that wait for nothing but their turn.
    pub(super) fn go_on_answering(&mut self) {
        for id in std::mem::take(&mut self.busy) {
            self.answer_more(id);
            self.update_interest(id);
        }
    }

    /// Answer a query of this user's.
    pub(super) fn begin_answer(&mut self, id: u64, uid: u32, query: Query) {
        let answer = Answer::new(query, uid, &self.families);
        if let Some(connection) = self.connection(id) {
            connection.answer = Some(answer);
        }
        self.answer_more(id);
    }

    /// Make and send one more piece of an answer, if the client has read the last one.
    pub(super) fn answer_more(&mut self, id: u64) {
        let report = self.report();
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.is_drained() {
            return;
        }
        let Some(mut answer) = connection.answer.take() else {
            return;
        };
        let rack = self.rack.as_ref();
        let rack = rack.map(|rack| rack.seen(&self.registry, &self.reloads));
        let world = World {
            families: &self.families,
            registry: &self.registry,
            monitor: report,
            rack: rack.as_ref().map(|rack| rack as &dyn OtherHosts),
        };
        let step = answer.step(&world);
        let Some(connection) = self.connection(id) else {
            return;
        };
        let said = match step {
            Step::Done => say(connection, Vec::new()),
            Step::Text(text) => {
                connection.answer = Some(answer);
                say(connection, text)
            }
            Step::Working => {
                connection.answer = Some(answer);
                self.busy.push(id);
                Said::Fine
            }
        };
        if said == Said::Lost {
            self.give_up(id);
        }
    }

    fn report(&self) -> MonitorReport {
        let totals = self.registry.totals();
        MonitorReport {
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            connections: self.connections_of.values().sum::<usize>() as u64,
            processes: self.clients.len() as u64,
            ends: self.registry.ends() as u64,
            arenas: self.registry.arenas().len() as u64,
            slots: self.registry.arenas().slots_in_use(),
            leases: self.registry.leases() as u64,
            registered: totals.registered,
            paired: totals.paired,
            refused: totals.refused,
            ..self.counts
        }
    }
}

fn say(connection: &mut Connection, text: Vec<u8>) -> Said {
    connection.say(MonitorMessage::Text(text).encode(), None)
}
