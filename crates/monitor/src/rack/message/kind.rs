//! Numbers of the frames.

pub const HELLO: u16 = 1;
pub const PING: u16 = 2;
pub const WINDOW_OFFER: u16 = 3;
pub const WINDOW_ANSWER: u16 = 4;
pub const OFFER: u16 = 5;
pub const WITHDRAW: u16 = 6;
pub const GONE: u16 = 7;
pub const DEAL: u16 = 8;
pub const REFUSE: u16 = 9;
pub const RETIRE: u16 = 10;
pub const PROBE: u16 = 11;
pub const IN_USE: u16 = 12;
pub const POSITION: u16 = 13;
pub const REMAINDER: u16 = 14;
pub const ARRIVED: u16 = 15;
pub const ALONE: u16 = 16;
pub const WINDOW_LOST: u16 = 17;
pub const LEFT: u16 = 18;
pub const BEAT: u16 = 19;
pub const DECLINE: u16 = 20;
pub const BEAT_WANTED: u16 = 21;
