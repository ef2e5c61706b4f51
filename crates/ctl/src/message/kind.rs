//! Numbers of the messages.

pub const HELLO: u16 = 1;
pub const REGISTER: u16 = 2;
pub const RELEASE: u16 = 3;
pub const LEASE: u16 = 4;
pub const QUERY: u16 = 5;
pub const SECRET: u16 = 6;
pub const LEND: u16 = 7;
pub const ADOPT: u16 = 8;
pub const TAKE_BACK: u16 = 9;
pub const WATCH: u16 = 10;
pub const POSITION: u16 = 11;
pub const REMAINDER: u16 = 12;
pub const DOUBT: u16 = 13;

pub const WELCOME: u16 = 129;
pub const REGISTERED: u16 = 130;
pub const GRANT: u16 = 131;
pub const REFUSED: u16 = 132;
pub const TEXT: u16 = 133;
pub const RETIRE: u16 = 134;
pub const LENDABLE: u16 = 135;
pub const LENT: u16 = 136;
pub const POSITION_OF_PEER: u16 = 137;
pub const REMAINDER_OF_PEER: u16 = 138;
pub const ALONE: u16 = 139;
pub const WINDOW_LOST: u16 = 140;
pub const LEFT: u16 = 141;
pub const CARRIED: u16 = 142;
pub const BEYOND: u16 = 143;
pub const LOOKED_INTO: u16 = 144;
