//! select and pselect, by way of poll when a ring is involved.

use core::ffi::{c_int, c_ulong};
use core::time::Duration;
use std::time::Instant;

use crosslane_stream::interrupt::Since;
use crosslane_stream::process;
use crosslane_sys::kernel::SignalsHeld;
use crosslane_sys::{Errno, cancel, real};
use libc::{fd_set, pollfd, sigset_t, timespec, timeval};

use crate::kernels_sleep::Asleep;
use crate::{c, epoll, poll};

/// What makes a descriptor ready in each of the three sets (select(2)). One that is closed while the kernel waits
/// is ready in all.
const READ: i16 = libc::POLLRDNORM
    | libc::POLLRDBAND
    | libc::POLLIN
    | libc::POLLHUP
    | libc::POLLERR
    | libc::POLLNVAL;
const WRITE: i16 =
    libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | libc::POLLERR | libc::POLLNVAL;
const EXCEPT: i16 = libc::POLLPRI | libc::POLLNVAL;

const WORD_BITS: usize = c_ulong::BITS as usize;

/// A set of the program's, as an array of words: programs may make it larger than `fd_set`.
#[derive(Clone, Copy)]
struct Bits(*mut c_ulong);

impl Bits {
    fn has(self, fd: usize) -> bool {
        // SAFETY: the program's promise: the set has at least as many bits as it says.
        !self.0.is_null() && unsafe { *self.0.add(fd / WORD_BITS) } >> (fd % WORD_BITS) & 1 == 1
    }

    fn put(self, fd: usize, on: bool) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: as in `has`.
        let word = unsafe { self.0.add(fd / WORD_BITS) };
        let bit = 1 << (fd % WORD_BITS);
        // SAFETY: as above.
        unsafe { *word = if on { *word | bit } else { *word & !bit } };
    }
}

struct Sets {
    count: usize,
    read: Bits,
    write: Bits,
    except: Bits,
}

impl Sets {
    fn new(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
    ) -> Option<Self> {
        let count = in_table(usize::try_from(count).ok()?);
        let bytes = count.div_ceil(WORD_BITS) * (WORD_BITS / 8);
        let is_room = |set: *mut u8| c::may_be(set, bytes) && c::room(set, bytes) == bytes;
        let may_be = |set: *mut fd_set| set.is_null() || is_room(set.cast::<u8>());
        if ![read, write, except].into_iter().all(may_be) {
            return None;
        }
        let (read, write, except) = (Bits(read.cast()), Bits(write.cast()), Bits(except.cast()));
        Some(Self {
            count,
            read,
            write,
            except,
        })
    }

    fn descriptors(&self) -> Vec<pollfd> {
        let wanted = |fd| {
            let mut events = 0;
            for (set, bits) in [
                (self.read, libc::POLLIN),
                (self.write, libc::POLLOUT),
                (self.except, libc::POLLPRI),
            ] {
                if set.has(fd) {
                    events |= bits;
                }
            }
            events
        };
        (0..self.count)
            .filter_map(|fd| {
                let events = wanted(fd);
                (events != 0).then_some(pollfd {
                    fd: c_int::try_from(fd).ok()?,
                    events,
                    revents: 0,
                })
            })
            .collect()
    }

    /// As the kernel, which writes whole words: behind the last descriptor nothing is left.
    fn end(&self) {
        let beyond = self.count..self.count.next_multiple_of(WORD_BITS);
        for set in [self.read, self.write, self.except] {
            beyond.clone().for_each(|fd| set.put(fd, false));
        }
    }

    fn answer(&self, fds: &[pollfd], has_waited: bool) -> Result<usize, Errno> {
        if !has_waited && fds.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
            return Err(Errno::BADF);
        }
        let mut total = 0;
        for one in fds {
            let fd = one.fd.unsigned_abs() as usize;
            for (set, wish, bits) in [
                (self.read, libc::POLLIN, READ),
                (self.write, libc::POLLOUT, WRITE),
                (self.except, libc::POLLPRI, EXCEPT),
            ] {
                if one.events & wish != 0 {
                    let on = one.revents & bits != 0;
                    set.put(fd, on);
                    total += usize::from(on);
                }
            }
        }
        self.end();
        Ok(total)
    }

    /// The answer, or, if no connection has rings, what to hold while the kernel waits.
    fn wait(
        &self,
        timeout: Option<Duration>,
        mask: *const sigset_t,
        since: Since,
    ) -> Result<Result<usize, Errno>, Asleep> {
        let mut fds = self.descriptors();
        if poll::is_kernels(&fds)
            && let Some(asleep) = Asleep::new(&fds)
        {
            return Err(asleep);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (mut held, mut has_waited): (Option<SignalsHeld>, _) = (None, false);
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let own = held.as_ref().filter(|_| mask.is_null());
            let own = own.map(SignalsHeld::mask);
            let mask = own.as_ref().map_or(mask, core::ptr::from_ref);
            let wait = || poll::wait_any(&mut fds, left, mask, (since, &mut has_waited));
            let answered = match cancel::guarded(&held, wait) {
                // poll reports hang-ups that nobody selects for; those are no answer.
                Ok(found) => self.answer(&fds, has_waited).map(|total| (found, total)),
                Err(errno) => Err(errno),
            };
            match answered {
                Ok((found, 0)) if found > 0 && left != Some(Duration::ZERO) => {
                    has_waited = true;
                    let held = held.get_or_insert_with(SignalsHeld::hold);
                    let is_interrupted = held.nap_under(mask, Duration::from_millis(1));
                    // The sets of a call that fails are as they were.
                    fds = self.restore(fds);
                    if is_interrupted {
                        return Ok(Err(Errno::INTR));
                    }
                }
                Ok((_, total)) => return Ok(Ok(total)),
                Err(errno) => return Ok(Err(errno)),
            }
        }
    }

    /// The sets as the program gave them, for another round.
    fn restore(&self, fds: Vec<pollfd>) -> Vec<pollfd> {
        for one in &fds {
            let fd = one.fd.unsigned_abs() as usize;
            for (set, wish) in [
                (self.read, libc::POLLIN),
                (self.write, libc::POLLOUT),
                (self.except, libc::POLLPRI),
            ] {
                if one.events & wish != 0 {
                    set.put(fd, true);
                }
            }
        }
        fds
    }
}

/// Programs may ask for more descriptors than their sets have room for: the kernel looks at those only for which the process
/// has room.
fn in_table(count: usize) -> usize {
    match count > libc::FD_SETSIZE {
        true => crosslane_sys::process::table_size().map_or(count, |size| count.min(size)),
        false => count,
    }
}

/// Whether the kernel alone can know of what is selected, now and while it waits.
fn is_kernels() -> bool {
    process::get().is_none() && !epoll::has_sets()
}

fn finish(found: Result<usize, Errno>) -> c_int {
    match found {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(errno) => c::fail(errno),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let since = Since::now(core::ptr::null());
    // SAFETY: the program's promise; null means no limit.
    let time = unsafe { timeout.as_mut() };
    let limit = match &time {
        None => Some(None),
        Some(time) => u64::try_from(time.tv_sec)
            .ok()
            .zip(u64::try_from(time.tv_usec).ok())
            .map(|(seconds, micros)| {
                Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
            }),
    };
    let mut asleep = None;
    if !is_kernels()
        && let (Some(sets), Some(limit)) = (Sets::new(count, read, write, except), limit)
    {
        let started = Instant::now();
        match sets.wait(limit, core::ptr::null(), since) {
            Ok(found) => {
                if let (Some(time), Some(limit)) = (time, limit) {
                    // Linux tells how much was left (select(2)).
                    let left = limit.saturating_sub(started.elapsed());
                    time.tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
                    time.tv_usec = i64::from(left.subsec_micros());
                }
                return finish(found);
            }
            Err(held) => asleep = Some(held),
        }
    }
    cancel::guarded(&asleep, || {
        // SAFETY: passed on.
        unsafe { real::select(count, read, write, except, timeout) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let since = Since::now(mask);
    // SAFETY: the program's promise; null means no limit.
    let time = unsafe { timeout.as_ref() };
    let mut asleep = None;
    if time.is_none_or(poll::is_legal)
        && !poll::is_bad_mask(mask)
        && !is_kernels()
        && let Some(sets) = Sets::new(count, read, write, except)
    {
        match sets.wait(time.map(poll::duration), mask, since) {
            Ok(found) => return finish(found),
            Err(held) => asleep = Some(held),
        }
    }
    cancel::guarded(&asleep, || {
        // SAFETY: passed on.
        unsafe { real::pselect(count, read, write, except, timeout, mask) }
    })
}
