//! Which addresses may be dialled.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;

/// An address that was checked. Only [`vet`] makes one, and nothing else can be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Vetted(SocketAddr);

impl Vetted {
    pub(crate) fn socket(self) -> SocketAddr {
        self.0
    }
}

/// Checks an address: it is a public one of another machine, or the owner allowed its range for this host.
/// Our own listeners are refused either way.
pub(crate) fn vet(address: SocketAddr, allowed: &[IpNet], own: &[SocketAddr]) -> Option<Vetted> {
    let ip = address.ip().to_canonical();
    let address = SocketAddr::new(ip, address.port());
    if address.port() == 0 || ip.is_unspecified() || is_own_listener(address, own) {
        return None;
    }
    let is_allowed = allowed.iter().any(|range| range.contains(&ip));
    (is_allowed || !(is_special(ip) || is_own_machine(ip))).then_some(Vetted(address))
}

/// Whether an address is anything but a public unicast address of the internet.
pub(crate) fn is_special(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => SPECIAL_V4
            .iter()
            .any(|(network, bits)| (ip.to_bits() ^ network.to_bits()).leading_zeros() >= *bits),
        // Global unicast is 2000::/3; inside it, what embeds or documents other addresses is not for dialling.
        IpAddr::V6(ip) => {
            ip.segments()[0] & 0xe000 != 0x2000
                || SPECIAL_V6.iter().any(|(network, bits)| {
                    (ip.to_bits() ^ network.to_bits()).leading_zeros() >= *bits
                })
        }
    }
}

fn is_own_listener(address: SocketAddr, own: &[SocketAddr]) -> bool {
    own.iter().any(|listener| {
        let here = listener.ip().to_canonical();
        listener.port() == address.port()
            && (here == address.ip()
                // A listener on all addresses has every address of this machine.
                || here.is_unspecified()
                    && (address.ip().is_loopback() || is_own_machine(address.ip())))
    })
}

/// Whether packets to an address stay on this machine. Connecting a UDP socket sends nothing, but picks the source
/// address; that of a packet to oneself is oneself.
fn is_own_machine(ip: IpAddr) -> bool {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    is_own(ip, source)
}

/// What cannot be found out, for want of descriptors for instance, is taken for our own machine.
fn is_own(ip: IpAddr, source: io::Result<SocketAddr>) -> bool {
    match source {
        Ok(source) => source.ip().to_canonical() == ip,
        // Without a route, or without IPv6, there is nothing to connect to either.
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkDown
                | io::ErrorKind::AddrNotAvailable
                | io::ErrorKind::Unsupported
        ),
    }
}

// The IANA special-purpose registry, and metadata services on addresses that look public.
const SPECIAL_V4: [(Ipv4Addr, u32); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Azure's wire server.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    // Relays to 6to4.
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Multicast, reserved, broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

const SPECIAL_V6: [(Ipv6Addr, u32); 6] = [
    // Teredo, ORCHID and the rest of the protocol assignments.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4 embeds IPv4 addresses.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 443)
    }

    #[test]
    fn no_inside_address_is_dialled() {
        for text in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "100.64.0.1",
            "168.63.129.16",
            "192.0.0.192",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2002:a00:1::",
            "2001:0:a00:1::",
            "2001:db8::1",
            "fec0::1",
        ] {
            assert_eq!(vet(socket(text), &[], &[]), None, "{text}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_told_from_our_own_is_taken_for_it() {
        let ip = "1.1.1.1".parse().unwrap();
        // EMFILE: another run may have taken all descriptors.
        assert!(is_own(ip, Err(io::Error::from_raw_os_error(24))));
        assert!(!is_own(ip, Err(io::ErrorKind::NetworkUnreachable.into())));
        assert!(!is_own(ip, Ok("192.168.0.2:9".parse().unwrap())));
        assert!(is_own(ip, Ok("1.1.1.1:9".parse().unwrap())));
    }

    #[test]
    fn public_addresses_are_dialled() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(vet(socket(text), &[], &[]).is_some(), "{text}");
        }
    }

    #[test]
    fn the_owner_may_allow_a_range() {
        let range = "127.0.0.0/8".parse().unwrap();
        assert!(vet(socket("127.0.0.1"), &[range], &[]).is_some());
        assert!(vet(socket("::ffff:127.0.0.1"), &[range], &[]).is_some());
        assert_eq!(vet(socket("10.0.0.1"), &[range], &[]), None);
    }

    #[test]
    fn an_allowed_range_does_not_reach_our_own_listeners() {
        let range = "127.0.0.0/8".parse().unwrap();
        assert_eq!(
            vet(socket("127.0.0.1"), &[range], &[socket("127.0.0.1")]),
            None
        );
        assert_eq!(
            vet(socket("127.0.0.1"), &[range], &[socket("0.0.0.0")]),
            None
        );
        let elsewhere = SocketAddr::new("127.0.0.1".parse().unwrap(), 444);
        assert!(vet(elsewhere, &[range], &[socket("127.0.0.1")]).is_some());
    }
}
