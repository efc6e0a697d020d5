//! How the sandbox's first process sets up its network.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen as accept,
    socket_with,
};

use crate::netlink::error_number;
use crate::nft::{NAMES, PROXY_V4, PROXY_V6};
use crate::sys;

/// The run's listeners.
pub(crate) struct Listeners {
    pub(crate) v4: OwnedFd,
    pub(crate) v6: Option<OwnedFd>,
    pub(crate) names_udp: OwnedFd,
    pub(crate) names_tcp: OwnedFd,
}

/// Sends one route message and reads its acknowledgement.
pub(crate) fn route(message: &[u8]) -> Result<(), Errno> {
    let socket = netlink(None)?;
    rustix::net::send(&socket, message, SendFlags::empty())?;
    let mut answer = [0_u8; 1024];
    let (_, length) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    match error_number(&answer[..length.min(answer.len())]) {
        Some(0) => Ok(()),
        Some(number) => Err(Errno::from_raw_os_error(number)),
        None => Err(Errno::PROTO),
    }
}

/// Sends one batch of packet filter messages. No acknowledgement is asked for; errors are told before `send` returns.
pub(crate) fn filter(batch: &[u8]) -> Result<(), Errno> {
    const NETLINK_NETFILTER: u32 = 12;
    let socket = netlink(rustix::net::RawProtocol::new(NETLINK_NETFILTER))?;
    rustix::net::send(&socket, batch, SendFlags::empty())?;
    let mut answer = [0_u8; 4096];
    match rustix::net::recv(&socket, &mut answer, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno),
        Ok((_, length)) => match error_number(&answer[..length.min(answer.len())]) {
            Some(0) => Ok(()),
            Some(number) => Err(Errno::from_raw_os_error(number)),
            None => Err(Errno::PROTO),
        },
    }
}

/// Makes the listeners. They take connections to foreign addresses, which needs `IP_TRANSPARENT`.
pub(crate) fn listen(with_v6: bool) -> Result<Listeners, Errno> {
    let v4 = transparent(AddressFamily::INET, SocketType::STREAM)?;
    bind(&v4, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_V4))?;
    accept(&v4, BACKLOG)?;
    let v6 = if with_v6 {
        let v6 = transparent(AddressFamily::INET6, SocketType::STREAM)?;
        rustix::net::sockopt::set_ipv6_v6only(&v6, true)?;
        bind(&v6, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, PROXY_V6, 0, 0))?;
        accept(&v6, BACKLOG)?;
        Some(v6)
    } else {
        None
    };
    let names = SocketAddrV4::new(Ipv4Addr::LOCALHOST, NAMES);
    let names_udp = transparent(AddressFamily::INET, SocketType::DGRAM)?;
    bind(&names_udp, &names)?;
    let names_tcp = transparent(AddressFamily::INET, SocketType::STREAM)?;
    bind(&names_tcp, &names)?;
    accept(&names_tcp, BACKLOG)?;
    Ok(Listeners {
        v4,
        v6,
        names_udp,
        names_tcp,
    })
}

fn transparent(family: AddressFamily, kind: SocketType) -> Result<OwnedFd, Errno> {
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let (level, name) = if family == AddressFamily::INET {
        (libc::SOL_IP, libc::IP_TRANSPARENT)
    } else {
        (libc::SOL_IPV6, libc::IPV6_TRANSPARENT)
    };
    sys::set_socket_option(socket.as_fd(), level, name, 1)?;
    Ok(socket)
}

fn netlink(protocol: Option<rustix::net::RawProtocol>) -> Result<OwnedFd, Errno> {
    socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol.map(Protocol::from_raw),
    )
}

/// Connections that wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
