//! What the launcher hands back: the run's listeners, how the command ended, what the machine can do.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sdk::report::{LimitHit, Outcome, Tail};

/// The listeners of one run, made inside its sandbox. All are blocking sockets.
#[derive(Debug)]
pub struct Doors {
    /// 127.0.0.1:3128: explicit proxy requests, and every IPv4 TCP connection to any other address (then the
    /// accepted socket's local address is the original destination).
    pub v4: TcpListener,
    /// [::1]:3129, the same for IPv6; absent where the kernel has no IPv6.
    pub v6: Option<TcpListener>,
    /// 127.0.0.1:53 over UDP, where resolv.conf points; where the kernel can track connections, questions to any other
    /// IPv4 address arrive here too.
    pub dns_udp: UdpSocket,
    /// 127.0.0.1:53 over TCP. TCP to port 53 of another address arrives at `v4`.
    pub dns_tcp: TcpListener,
}

/// The connections of a run that has no network of its own, in the place of [`Doors`]. They are the run's and nobody
/// else's. No more come once the run has ended.
#[derive(Debug)]
pub struct Brokered(pub(crate) Mutex<Receiver<Taken>>);

impl Iterator for Brokered {
    type Item = Taken;

    /// Waits for the next one. `None` once there can be none.
    fn next(&mut self) -> Option<Taken> {
        let connections = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        connections.recv().ok()
    }
}

/// One connection of a run.
#[derive(Debug)]
pub struct Taken {
    /// Our end of it; blocking.
    pub stream: TcpStream,
    /// Where the command wanted it to lead; `None` if it was to the run's proxy itself.
    pub destination: Option<SocketAddr>,
}

/// Which stream of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How the command ended and what it used.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// Limits that were reached, whether or not they ended it.
    pub limits_hit: Vec<LimitHit>,
    /// Time on the clock.
    pub wall: Duration,
    /// Processor time of the whole tree, where it could be measured.
    pub cpu: Option<Duration>,
    /// The most memory in use at once, where it could be measured.
    pub memory_peak: Option<u64>,
    /// The version of Landlock that kept what could be written, beside the mounts; 0 for none.
    pub landlock: u32,
    /// The end of standard output.
    pub stdout: Tail,
    /// The end of standard error.
    pub stderr: Tail,
    /// What the sandbox did not keep apart from the machine, as [`crate::Prepared::not_isolated`].
    pub not_isolated: &'static [&'static str],
    /// Why the layer lacks what the command changed: where it worked on a copy that could not be compared.
    pub not_kept: Option<String>,
}

/// One thing the machine can or cannot do.
#[derive(Clone, Debug)]
pub struct Check {
    /// What was tried.
    pub name: &'static str,
    /// Whether it worked.
    pub ok: bool,
    /// Whether `valetkey run` works without it.
    pub optional: bool,
    /// What was found.
    pub detail: String,
    /// What to do; empty when it worked.
    pub advice: String,
}
