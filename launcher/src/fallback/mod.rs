//! The sandbox for machines that refuse namespaces, as most containers do.
//!
//! Landlock says which files there are, a system call filter says which sockets, and the supervisor makes every
//! connection itself and puts it in the place of the command's own: what a connection leads to is decided by the
//! supervisor, never by memory that the command could change meanwhile. It isolates less than namespaces do
//! ([`NOT_ISOLATED`]), so it is built only for owners who asked for it.

mod connect;
mod copy;
mod filter;
mod guard;
mod lay;
mod layer;
mod metadata;
mod prepare;
mod questions;
mod rules;
mod scratch;
mod start;

pub(crate) use copy::{Copied, copy};
pub(crate) use layer::write as write_layer;
pub(crate) use prepare::{Fallback, prepare};
pub(crate) use scratch::Scratch;
pub(crate) use start::{Standing, start};

/// What this sandbox does not keep apart, and namespaces would.
pub(crate) const NOT_ISOLATED: &[&str] = &[
    "processes of this machine are visible: their numbers, names and command lines, not their memory, environment or \
     files",
    "the network settings of this machine are visible, such as its addresses and open connections",
    "names and sizes of files can be found out by guessing their paths; they cannot be listed, read or changed",
    "it runs as your own user: what you own counts as its own where a limit is counted by user",
    "no program in it can listen for connections, and none has Unix sockets, UDP, terminals or shared memory",
    "a connection's other end appears as 127.0.0.1, and names are found by programs of the C library only",
    "memory, processor time and disk are kept by watching where no control group can be made, so they can be \
     overshot for some milliseconds",
];
