//! The life of a sandbox: prepared, started, released, finished.

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use sdk::report::{LimitHit, Outcome, Tail};

use crate::{Error, Spec};

/// A sandbox that has been checked against the host, with everything opened and allocated.
#[derive(Debug)]
pub struct Prepared {
    notes: Vec<String>,
}

/// Checks `spec` against the host and opens what it names.
pub fn prepare(spec: &Spec) -> Result<Prepared, Error> {
    let _ = spec;
    Err(Error::Unsupported)
}

impl Prepared {
    /// What the caller should tell the owner: dropped `PATH` entries, limits that are enforced by supervision only.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where the command will start, as a path inside.
    pub fn workdir(&self) -> &Path {
        Path::new("/")
    }

    /// Files and folders of the workspace that are hidden, relative to it.
    pub fn hidden(&self) -> &[std::path::PathBuf] {
        &[]
    }

    /// Builds the sandbox. It stands when this returns; nothing of the command has run.
    pub fn start(self) -> Result<Started, Error> {
        Err(Error::Unsupported)
    }
}

/// A sandbox that stands. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Started {
    /// The run's listeners, for `NetworkMode::ProxyOnly`. Take them before `release`.
    pub doors: Option<Doors>,
}

impl Started {
    /// Lets the command start.
    pub fn release(&mut self) -> Result<(), Error> {
        Err(Error::Unsupported)
    }

    /// A way to end the sandbox from another thread.
    pub fn killer(&self) -> Killer {
        Killer {}
    }

    /// Waits for the end, passing on output as it comes and enforcing the limits. Blocks; a callback that blocks
    /// delays the enforcement.
    pub fn wait(self, on_output: &mut dyn FnMut(Stream, &[u8])) -> Finished {
        let _ = on_output;
        unreachable!("nothing starts yet")
    }
}

/// The listeners of one run, made inside its sandbox. All are blocking sockets.
#[derive(Debug)]
pub struct Doors {
    /// 127.0.0.1:3128: explicit proxy requests, and every IPv4 TCP connection to any other address (then the
    /// accepted socket's local address is the original destination).
    pub v4: TcpListener,
    /// [::1]:3129, the same for IPv6; absent where the kernel has no IPv6.
    pub v6: Option<TcpListener>,
    /// 127.0.0.1:53 over UDP, where resolv.conf points; questions to any other IPv4 address arrive here too.
    pub dns_udp: UdpSocket,
    /// 127.0.0.1:53 over TCP.
    pub dns_tcp: TcpListener,
}

/// Ends a sandbox from another thread.
#[derive(Clone, Debug)]
pub struct Killer {}

impl Killer {
    /// Ends everything in the sandbox. Does nothing if it has ended.
    pub fn kill(&self) {}
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
    /// The end of standard output.
    pub stdout: Tail,
    /// The end of standard error.
    pub stderr: Tail,
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

/// Tries everything the launcher needs, for real, and says what to do about what does not work.
pub fn doctor() -> Vec<Check> {
    Vec::new()
}
