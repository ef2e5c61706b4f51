//! The two halves of a connection: random calls that move bytes, and the check of each.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::sync::Arc;

use crosslane_exercise::calls::{
    close, file_of, ioctl_read, read, readv, recv, recvfrom, recvmsg, send, sendfile, sendmsg,
    write, writev,
};
use crosslane_exercise::content::Content;
use crosslane_exercise::random::Random;
use crosslane_exercise::{Answer, Errno};
use libc::{MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL};

use crate::Rules;
use crate::board::{Half, Status};
use crate::plan::call_size;

/// What one call of a half did.
#[derive(Debug)]
pub enum Moved {
    /// Some bytes.
    Some,
    /// None, as it would have had to wait.
    None,
    /// The stream has ended.
    End,
    /// The connection is broken.
    Broken(Errno),
}

/// What keeps calls from waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing.
    Allowed,
    /// O_NONBLOCK on the descriptor.
    OffByDescriptor,
    /// MSG_DONTWAIT in every call, which therefore must be one that takes flags.
    OffByCall,
}

impl Waiting {
    fn flag(self) -> i32 {
        if self == Self::OffByCall {
            MSG_DONTWAIT
        } else {
            0
        }
    }

    fn allows_calls_without_flags(self) -> bool {
        self != Self::OffByCall
    }
}

#[derive(Clone, Copy)]
enum Out {
    Write,
    Send,
    More,
    DontWait,
    Writev,
    Sendmsg,
    Sendfile,
}

#[derive(Clone, Copy)]
enum In {
    Read,
    Recv,
    Recvfrom,
    Readv,
    Recvmsg,
    Peek,
    WaitAll,
    DontWait,
    Counted,
}

/// The direction in which an end sends.
pub struct Outgoing {
    pub sent: u64,
    pub total: u64,
    content: Content,
    random: Random,
    calls: Vec<Out>,
    longest: usize,
    status: Arc<Status>,
}

impl Outgoing {
    pub fn new(status: &Arc<Status>) -> Self {
        const ALL: [Out; 8] = [
            Out::Write,
            Out::Send,
            Out::Send,
            Out::More,
            Out::DontWait,
            Out::Writev,
            Out::Sendmsg,
            Out::Sendfile,
        ];
        let (plan, side) = (status.plan, status.side);
        let mut random = plan.choices(side, 1);
        // Most programs use one call; mixing all is for the others.
        let calls = if random.one_in(2) {
            vec![*random.pick(&ALL)]
        } else {
            ALL.to_vec()
        };
        Self {
            sent: 0,
            total: plan.total(side),
            content: plan.content(side),
            random,
            calls,
            longest: plan.longest_call,
            status: Arc::clone(status),
        }
    }

    pub fn is_over(&self) -> bool {
        self.sent == self.total
    }

    /// Send at most `most` bytes by one call.
    pub fn push(&mut self, fd: RawFd, most: u64, waiting: Waiting) -> Moved {
        let most = usize::try_from(most.min(self.total - self.sent)).unwrap_or(usize::MAX);
        let size = call_size(&mut self.random, self.longest.min(most).max(1)).min(most);
        let mut bytes = vec![0; size];
        self.content.fill(self.sent, &mut bytes);
        let call = *self.random.pick(&self.calls);
        let answer = self.call(call, fd, &bytes, waiting);
        match answer {
            Ok(count) => {
                self.sent += count as u64;
                self.status.moved(Half::Sending, count);
                Moved::Some
            }
            Err(errno) => self.refused(errno),
        }
    }

    fn call(&mut self, call: Out, fd: RawFd, bytes: &[u8], waiting: Waiting) -> Answer {
        let flags = MSG_NOSIGNAL | waiting.flag();
        let plain = waiting.allows_calls_without_flags();
        let middle = self.random.below(bytes.len() + 1);
        let is_last = self.sent + bytes.len() as u64 == self.total;
        let name = |name| self.status.begin(Half::Sending, name);
        match call {
            Out::More if !is_last && self.random.one_in(500) => {
                name("send with MSG_MORE");
                send(fd, bytes, flags | MSG_MORE)
            }
            Out::Write if plain => {
                name("write");
                write(fd, bytes)
            }
            Out::Send | Out::More | Out::Write => {
                name("send");
                send(fd, bytes, flags)
            }
            Out::DontWait => {
                name("send with MSG_DONTWAIT");
                send(fd, bytes, flags | MSG_DONTWAIT)
            }
            Out::Writev if plain => {
                name("writev");
                let (front, back) = bytes.split_at(middle);
                writev(
                    fd,
                    &[IoSlice::new(front), IoSlice::new(&[]), IoSlice::new(back)],
                )
            }
            Out::Writev | Out::Sendmsg => {
                name("sendmsg");
                let (front, back) = bytes.split_at(middle);
                sendmsg(fd, &[IoSlice::new(front), IoSlice::new(back)], flags)
            }
            Out::Sendfile if plain => {
                name("sendfile");
                send_file(fd, bytes, self.random.one_in(2))
            }
            Out::Sendfile => {
                name("send");
                send(fd, bytes, flags)
            }
        }
    }

    fn refused(&self, errno: Errno) -> Moved {
        match errno {
            Errno(libc::EAGAIN | libc::EINTR) => Moved::None,
            Errno(libc::EPIPE | libc::ECONNRESET) => Moved::Broken(errno),
            _ => self.status.fail(&format!("sending failed with {errno}")),
        }
    }
}

fn send_file(fd: RawFd, bytes: &[u8], with_offset: bool) -> Answer {
    let file = file_of(bytes)?;
    let mut offset = 0;
    let sent = sendfile(fd, file, with_offset.then_some(&mut offset), bytes.len());
    close(file)?;
    sent
}

/// The direction in which an end receives.
pub struct Incoming {
    pub received: u64,
    pub total: u64,
    content: Content,
    random: Random,
    calls: Vec<In>,
    longest: usize,
    status: Arc<Status>,
    rules: Rules,
}

impl Incoming {
    pub fn new(status: &Arc<Status>, rules: Rules) -> Self {
        const ALL: [In; 11] = [
            In::Read,
            In::Read,
            In::Recv,
            In::Recv,
            In::Recvfrom,
            In::Readv,
            In::Recvmsg,
            In::Peek,
            In::WaitAll,
            In::DontWait,
            In::Counted,
        ];
        let (plan, side) = (status.plan, status.side);
        let mut random = plan.choices(side, 2);
        let calls = if random.one_in(2) {
            vec![*random.pick(&ALL)]
        } else {
            ALL.to_vec()
        };
        Self {
            received: 0,
            total: plan.total(side.other()),
            content: plan.content(side.other()),
            random,
            calls,
            longest: plan.longest_call,
            status: Arc::clone(status),
            rules,
        }
    }

    pub fn is_complete(&self) -> bool {
        self.received == self.total
    }

    /// Receive at most `most` bytes by one call, and check them.
    pub fn pull(&mut self, fd: RawFd, most: u64, waiting: Waiting) -> Moved {
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        let mut buffer = vec![0; call_size(&mut self.random, self.longest.min(most))];
        let call = *self.random.pick(&self.calls);
        let is_peek = matches!(call, In::Peek) && self.random.one_in(2);
        let answer = self.call(call, is_peek, fd, &mut buffer, waiting);
        match answer {
            Ok(0) => Moved::End,
            Ok(count) => {
                self.check(&buffer[..count]);
                let taken = if is_peek { 0 } else { count };
                self.received += taken as u64;
                self.status.moved(Half::Receiving, taken);
                Moved::Some
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => Moved::None,
            Err(errno @ Errno(libc::ECONNRESET | libc::EPIPE)) => Moved::Broken(errno),
            Err(errno) => self.status.fail(&format!("receiving failed with {errno}")),
        }
    }

    fn call(
        &mut self,
        call: In,
        is_peek: bool,
        fd: RawFd,
        buffer: &mut [u8],
        waiting: Waiting,
    ) -> Answer {
        let flags = waiting.flag();
        let plain = waiting.allows_calls_without_flags();
        let middle = self.random.below(buffer.len() + 1);
        let name = |name| self.status.begin(Half::Receiving, name);
        match call {
            In::Peek if is_peek => {
                name("recv with MSG_PEEK");
                recv(fd, buffer, flags | MSG_PEEK)
            }
            In::WaitAll if waiting == Waiting::Allowed => {
                name("recv with MSG_WAITALL");
                recv(fd, buffer, MSG_WAITALL)
            }
            In::Read if plain => {
                name("read");
                read(fd, buffer)
            }
            In::Readv if plain => {
                name("readv");
                let (front, back) = buffer.split_at_mut(middle);
                readv(fd, &mut [IoSliceMut::new(front), IoSliceMut::new(back)])
            }
            In::Recvmsg | In::Readv => {
                name("recvmsg");
                let (front, back) = buffer.split_at_mut(middle);
                let mut parts = [IoSliceMut::new(front), IoSliceMut::new(back)];
                recvmsg(fd, &mut parts, flags).map(|received| received.bytes)
            }
            In::Recvfrom => {
                name("recvfrom");
                recvfrom(fd, buffer, flags).map(|received| received.bytes)
            }
            In::DontWait => {
                name("recv with MSG_DONTWAIT");
                recv(fd, buffer, MSG_DONTWAIT)
            }
            In::Counted => {
                name("recv after FIONREAD");
                self.receive_counted(fd, buffer, flags)
            }
            In::Recv | In::Read | In::Peek | In::WaitAll => {
                name("recv");
                recv(fd, buffer, flags)
            }
        }
    }

    /// Ask how much there is; as much must not make us wait.
    fn receive_counted(&self, fd: RawFd, buffer: &mut [u8], flags: i32) -> Answer {
        let count = ioctl_read(fd, libc::FIONREAD)?;
        if count as u64 > self.total - self.received {
            self.status.fail(&format!(
                "FIONREAD says {count}, which is more than is to come"
            ));
        }
        let answer = recv(fd, buffer, if count > 0 { MSG_DONTWAIT } else { flags });
        if count > 0 && answer.is_err() && !self.rules.window_may_go {
            self.status
                .fail(&format!("FIONREAD said {count}, but recv said {answer:?}"));
        }
        answer
    }

    fn check(&self, bytes: &[u8]) {
        if let Err(mismatch) = self.content.check(self.received, bytes) {
            self.status
                .fail(&format!("{} bytes came of which {mismatch}", bytes.len()));
        }
        if self.received + bytes.len() as u64 > self.total {
            self.status.fail("more came than was sent");
        }
    }
}
