//! posix_spawn(3).

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use crate::Errno;

/// What a child is to do before it is another program.
pub struct SpawnActions(Box<libc::posix_spawn_file_actions_t>);

impl Default for SpawnActions {
    /// Nothing so far.
    fn default() -> Self {
        let mut actions = Box::new(MaybeUninit::uninit());
        // SAFETY: the list is writable.
        let made = unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
        assert_eq!(made, 0, "a list of actions can be made");
        // SAFETY: made just now.
        Self(unsafe { actions.assume_init() })
    }
}

impl SpawnActions {
    /// dup2(2), of whatever the number names by then.
    pub fn copy(&mut self, fd: RawFd, onto: RawFd) {
        let list = &raw mut *self.0;
        // SAFETY: the list has been made, and stays where it is.
        let added = unsafe { libc::posix_spawn_file_actions_adddup2(list, fd, onto) };
        assert_eq!(added, 0, "an action can be added");
    }

    /// Make a child that is this program, and has no arguments.
    pub fn spawn(&self, path: &CStr) -> Result<libc::pid_t, Errno> {
        let arguments = [path.as_ptr().cast_mut(), std::ptr::null_mut()];
        let (mut child, none) = (0, arguments[1..].as_ptr());
        // SAFETY: the path is a C string, and the lists end with null.
        let failed = unsafe {
            libc::posix_spawn(
                &raw mut child,
                path.as_ptr(),
                &raw const *self.0,
                std::ptr::null(),
                arguments.as_ptr(),
                none,
            )
        };
        match failed {
            0 => Ok(child),
            errno => Err(Errno(errno)),
        }
    }
}

impl Drop for SpawnActions {
    fn drop(&mut self) {
        // SAFETY: the list has been made.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut *self.0) };
    }
}
