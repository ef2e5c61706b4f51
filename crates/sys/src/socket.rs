//! Facts that the kernel keeps about a socket.
