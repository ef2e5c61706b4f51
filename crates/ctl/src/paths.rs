//! Where the monitor listens.

use std::path::{Path, PathBuf};

/// Environment variable that names the runtime directory.
pub const RUNTIME_DIR_VARIABLE: &str = "CROSSLANE_RUNTIME_DIR";

/// Environment variable with the secret of root's private monitor, in hexadecimal digits.
pub const SECRET_VARIABLE: &str = "CROSSLANE_SECRET";

/// Environment variable with the number of a run of `crosslane run --explain`, in hexadecimal
/// digits.
pub const RUN_VARIABLE: &str = "CROSSLANE_EXPLAIN";

/// Directory of the system service's socket.
pub const SYSTEM_RUNTIME_DIR: &str = "/run/crosslane";

/// Name of the socket in the runtime directory.
pub const SOCKET_NAME: &str = "monitor.sock";

/// Most bytes of a socket's path (unix(7): 108 with the null that ends it).
pub const MOST_PATH_BYTES: usize = 107;

/// Whether the kernel can name a socket in this directory.
pub fn has_room_for_socket(runtime_dir: &Path) -> bool {
    socket_in(runtime_dir).as_os_str().len() <= MOST_PATH_BYTES
}

/// The socket in a runtime directory.
pub fn socket_in(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join(SOCKET_NAME)
}

/// Directory of root's private monitor. Programs that give up root's rights must reach it, which
/// they cannot where `XDG_RUNTIME_DIR` points.
pub const ROOT_RUNTIME_DIR: &str = "/run/crosslane-root";

/// The directory of a user's private monitor: [`ROOT_RUNTIME_DIR`] for root, for others
/// `$XDG_RUNTIME_DIR/crosslane`, or `/tmp/crosslane-UID` where that is not set.
pub fn private_runtime_dir(xdg_runtime_dir: Option<&Path>, uid: u32) -> PathBuf {
    match xdg_runtime_dir {
        _ if uid == 0 => PathBuf::from(ROOT_RUNTIME_DIR),
        Some(dir) if dir.is_absolute() => dir.join("crosslane"),
        _ => PathBuf::from(format!("/tmp/crosslane-{uid}")),
    }
}
