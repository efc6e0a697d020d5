//! `connect()` of a command that has no network of its own: the supervisor makes a connection to itself, gives one end
//! to the run's proxy and puts the other in the place of the command's socket.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{SyncSender, TrySendError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::questions::Asked;
use crate::answer::Taken;
use crate::nft::{NAMES, PROXY_V4, PROXY_V6};
use crate::sys;

/// Makes the connections of one run.
#[derive(Debug)]
pub(super) struct Connections {
    to_proxy: SyncSender<Taken>,
    v4: TcpListener,
    v6: Option<TcpListener>,
    /// Sockets that were given, by the kernel's number: they are connected.
    given: HashSet<u64>,
}

/// Where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    /// To the proxy itself, which is asked for something.
    ToProxy,
    /// To another machine.
    Away(SocketAddr),
    /// Nowhere, and with which error.
    Nowhere(Errno),
}

impl Connections {
    /// Ready to make connections that `to_proxy` takes.
    pub(super) fn new(to_proxy: SyncSender<Taken>) -> std::io::Result<Self> {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        v4.set_nonblocking(true)?;
        let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
        if let Some(v6) = &v6 {
            v6.set_nonblocking(true)?;
        }
        Ok(Self {
            to_proxy,
            v4,
            v6,
            given: HashSet::new(),
        })
    }

    /// Answers one `connect(socket, address, length)`.
    pub(super) fn connect(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let [number, address, length, ..] = asked.question.arguments;
        let number = number as u32;
        let (wanted, family) = destination(asked, address, length as u32)?;
        let socket = std::fs::read_link(asked.place(&format!("fd/{number}")))
            .map_err(|_| Errno::BADF)
            .and_then(|link| socket_number(&link).ok_or(Errno::NOTSOCK))?;
        if self.given.contains(&socket) {
            return Err(Errno::ISCONN);
        }
        let flags = flags(asked, number).ok_or(Errno::BADF)?;
        let destination = match leads(wanted) {
            Leads::ToProxy => None,
            Leads::Away(destination) => Some(destination),
            Leads::Nowhere(errno) => return Err(errno),
        };
        let listener = match family {
            AddressFamily::INET6 => self.v6.as_ref().ok_or(Errno::NETUNREACH)?,
            _ => &self.v4,
        };
        let (theirs, ours) = pair(listener, family)?;
        rustix::io::ioctl_fionbio(&theirs, flags & libc::O_NONBLOCK.unsigned_abs() != 0)?;
        let place = std::fs::File::from(theirs);
        asked.check()?;
        let taken = Taken {
            stream: ours,
            destination,
        };
        match self.to_proxy.try_send(taken) {
            Ok(()) => {}
            // As many wait as may.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return Err(Errno::CONNREFUSED);
            }
        }
        let closes = flags & libc::O_CLOEXEC.unsigned_abs() != 0;
        sys::replace_descriptor(
            asked.filter,
            asked.question.id,
            place.as_fd(),
            number,
            closes,
        )?;
        if self.given.len() >= MOST_REMEMBERED {
            self.given.clear();
        }
        if let Ok(found) = place.metadata() {
            self.given.insert(found.ino());
        }
        Ok(())
    }
}

/// A connection of ours to `listener`: both ends.
fn pair(listener: &TcpListener, family: AddressFamily) -> Result<(OwnedFd, TcpStream), Errno> {
    let own = listener.local_addr().map_err(|_| Errno::NETDOWN)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let theirs = socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&theirs, &own) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => wait(&theirs, PollFlags::OUT)?,
        Err(errno) => return Err(errno),
    }
    sockopt::socket_error(&theirs)??;
    let name: SocketAddr = rustix::net::getsockname(&theirs)?
        .try_into()
        .map_err(|_| Errno::AFNOSUPPORT)?;
    // Others on this machine can connect to the listener, too. They are let go.
    for _ in 0..MOST_STRANGERS {
        match listener.accept() {
            Ok((stream, from)) if from == name => return Ok((theirs, stream)),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                wait(listener, PollFlags::IN)?;
            }
            Err(error) => {
                return Err(Errno::from_raw_os_error(
                    error.raw_os_error().unwrap_or(libc::ECONNREFUSED),
                ));
            }
        }
    }
    Err(Errno::CONNREFUSED)
}

fn wait(socket: impl AsFd, event: PollFlags) -> Result<(), Errno> {
    let mut waiting = [PollFd::new(&socket, event)];
    let time = Timespec {
        tv_sec: 2,
        tv_nsec: 0,
    };
    match poll(&mut waiting, Some(&time)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What a `struct sockaddr` of theirs says.
fn destination(
    asked: &Asked<'_>,
    address: u64,
    length: u32,
) -> Result<(SocketAddr, AddressFamily), Errno> {
    let mut bytes = [0_u8; 28];
    let wanted = bytes.len().min(length as usize);
    let length = asked.read(address, &mut bytes[..wanted])?;
    if length < wanted {
        return Err(Errno::FAULT);
    }
    parse(&bytes[..length])
}

fn parse(bytes: &[u8]) -> Result<(SocketAddr, AddressFamily), Errno> {
    let family = bytes.get(..2).ok_or(Errno::INVAL)?;
    let family = u16::from_ne_bytes([family[0], family[1]]);
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    match i32::from(family) {
        libc::AF_INET => {
            let bytes: &[u8; 8] = bytes.first_chunk().ok_or(Errno::INVAL)?;
            let address = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            Ok((
                SocketAddr::new(address.into(), port(bytes)),
                AddressFamily::INET,
            ))
        }
        libc::AF_INET6 => {
            let bytes: &[u8; 24] = bytes.first_chunk().ok_or(Errno::INVAL)?;
            let address: [u8; 16] = *bytes[8..].first_chunk().ok_or(Errno::INVAL)?;
            Ok((
                SocketAddr::new(Ipv6Addr::from(address).into(), port(bytes)),
                AddressFamily::INET6,
            ))
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// Nothing of the run listens, and what else listens on this machine is none of its business.
fn leads(wanted: SocketAddr) -> Leads {
    let (ip, port) = (wanted.ip().to_canonical(), wanted.port());
    let is_multicast = match ip {
        IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_multicast(),
    };
    if is_multicast {
        return Leads::Nowhere(Errno::NETUNREACH);
    }
    let is_own = ip.is_loopback() || ip.is_unspecified();
    match port {
        PROXY_V4 | PROXY_V6 if is_own => Leads::ToProxy,
        // The resolver of the machine may be its own: the run's answers.
        NAMES => Leads::Away(SocketAddr::new(ip, port)),
        _ if is_own => Leads::Nowhere(Errno::CONNREFUSED),
        _ => Leads::Away(SocketAddr::new(ip, port)),
    }
}

/// The kernel's number of a socket, from `socket:[123]`.
fn socket_number(link: &std::path::Path) -> Option<u64> {
    let text = link.to_str()?;
    text.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// The flags of a descriptor of theirs, `O_CLOEXEC` included.
fn flags(asked: &Asked<'_>, number: u32) -> Option<u32> {
    let text = std::fs::read_to_string(asked.place(&format!("fdinfo/{number}"))).ok()?;
    let octal = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u32::from_str_radix(octal.trim(), 8).ok()
}

const MOST_REMEMBERED: usize = 65_536;
const MOST_STRANGERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> Leads {
        leads(text.parse().unwrap())
    }

    #[test]
    fn only_the_proxy_is_found_on_this_machine() {
        assert_eq!(to("127.0.0.1:3128"), Leads::ToProxy);
        assert_eq!(to("[::ffff:127.0.0.1]:3128"), Leads::ToProxy);
        for other in [
            "127.0.0.1:22",
            "[::1]:80",
            "0.0.0.0:5432",
            "[::]:22",
            "127.9.9.9:443",
        ] {
            assert_eq!(to(other), Leads::Nowhere(Errno::CONNREFUSED), "{other}");
        }
    }

    #[test]
    fn every_other_address_is_the_proxys_to_judge() {
        let away = |text: &str| Leads::Away(text.parse().unwrap());
        for other in ["192.0.2.1:443", "169.254.169.254:80", "[2001:db8::1]:443"] {
            assert_eq!(to(other), away(other), "{other}");
        }
        assert_eq!(to("[::ffff:192.0.2.1]:80"), away("192.0.2.1:80"));
        assert_eq!(to("127.0.0.53:53"), away("127.0.0.53:53"));
        assert_eq!(to("224.0.0.1:80"), Leads::Nowhere(Errno::NETUNREACH));
    }

    #[test]
    fn an_address_of_another_family_or_cut_short_is_none() {
        let mut v4 = vec![0; 16];
        v4[..2].copy_from_slice(&2_u16.to_ne_bytes());
        v4[2..8].copy_from_slice(&[1, 187, 192, 0, 2, 1]);
        assert_eq!(parse(&v4).unwrap().0, "192.0.2.1:443".parse().unwrap());
        assert_eq!(parse(&v4[..7]), Err(Errno::INVAL));
        for family in [0_u16, 1, 16, 40] {
            v4[..2].copy_from_slice(&family.to_ne_bytes());
            assert_eq!(parse(&v4), Err(Errno::AFNOSUPPORT), "{family}");
        }
        assert_eq!(parse(&[]), Err(Errno::INVAL));
    }
}
