//! Where connections end.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use launcher::Doors;
use sdk::report::Outcome;

use crate::support::{Box, as_each_user};

/// Answers one connection with the address that the command meant; returns it.
fn answer(listener: &TcpListener) -> SocketAddr {
    let (mut connection, _) = listener.accept().unwrap();
    let mut request = [0; 4];
    connection.read_exact(&mut request).unwrap();
    let meant = connection.local_addr().unwrap();
    connection.write_all(b"pong").unwrap();
    meant
}

/// Runs a probe that makes one connection and returns where the command wanted to.
fn meant(arguments: &[&str], door: impl FnOnce(&Doors) -> &TcpListener) -> SocketAddr {
    let sandbox = Box::probe(arguments).with_network();
    let mut started = sandbox.start();
    let doors = started.doors.take().unwrap();
    started.release().unwrap();
    let waiting = std::thread::spawn(move || started.wait(&mut |_, _| {}));
    let meant = answer(door(&doors));
    let finished = waiting.join().unwrap();
    assert_eq!(finished.stdout.text, "pong\n", "{finished:?}");
    meant
}

#[test]
fn every_tcp_connection_ends_at_the_runs_listener() {
    as_each_user(
        "network::every_tcp_connection_ends_at_the_runs_listener",
        || {
            for (address, port) in [
                ("1.2.3.4", "443"),
                ("169.254.169.254", "80"),
                ("10.0.0.1", "5432"),
                ("8.8.8.8", "53"),
                ("127.0.0.1", "3128"),
            ] {
                let found = meant(&["connect", address, port], |doors| &doors.v4);
                let expected = SocketAddr::new(address.parse().unwrap(), port.parse().unwrap());
                assert_eq!(found, expected);
            }
        },
    );
}

#[test]
fn every_ipv6_connection_ends_there_too() {
    as_each_user("network::every_ipv6_connection_ends_there_too", || {
        for (address, port) in [("2001:db8::1", "443"), ("fd00::1", "22"), ("::1", "3129")] {
            let found = meant(&["connect", address, port], |doors| {
                doors.v6.as_ref().unwrap()
            });
            assert_eq!(found.ip(), address.parse::<IpAddr>().unwrap());
            assert_eq!(found.port().to_string(), port);
        }
    });
}

#[test]
fn names_are_asked_at_the_runs_resolver() {
    as_each_user("network::names_are_asked_at_the_runs_resolver", || {
        assert_eq!(asked(&["udp", "127.0.0.1", "53"]), "pong\n");
        let found = meant(&["connect", "127.0.0.1", "53"], |doors| &doors.dns_tcp);
        assert_eq!(found.port(), 53);
    });
}

#[test]
fn names_asked_elsewhere_are_answered_by_the_runs_resolver() {
    assert_eq!(asked(&["udp", "8.8.8.8", "53"]), "pong\n");
}

/// Runs a probe that sends one datagram, which the resolver answers.
fn asked(arguments: &[&str]) -> String {
    let sandbox = Box::probe(arguments).with_network();
    let mut started = sandbox.start();
    let resolver: UdpSocket = started.doors.take().unwrap().dns_udp;
    started.release().unwrap();
    let waiting = std::thread::spawn(move || started.wait(&mut |_, _| {}));
    let mut question = [0; 512];
    let (length, from) = resolver.recv_from(&mut question).unwrap();
    assert_eq!(&question[..length], b"ping");
    resolver.send_to(b"pong", from).unwrap();
    waiting.join().unwrap().stdout.text
}

#[test]
fn other_datagrams_are_refused() {
    as_each_user("network::other_datagrams_are_refused", || {
        for address in ["93.184.216.34", "2001:db8::1"] {
            let sandbox = Box::probe(&["udp", address, "443"]).with_network();
            assert_eq!(sandbox.output(), "ECONNREFUSED\n", "{address}");
        }
    });
}

#[test]
fn services_of_the_host_are_not_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    for sandbox in [
        Box::probe(&["connect", "127.0.0.1", &port]).with_network(),
        Box::probe(&["connect", "127.0.0.1", &port]),
    ] {
        assert_eq!(sandbox.output(), "ECONNREFUSED\n");
    }
}

#[test]
fn without_a_network_there_is_no_way_and_no_listener() {
    as_each_user(
        "network::without_a_network_there_is_no_way_and_no_listener",
        || {
            let sandbox = Box::shell(
                "./probe connect 1.2.3.4 443; ./probe connect 2001:db8::1 443; ./probe udp 8.8.8.8 53; ./probe connect 127.0.0.1 3128",
            );
            let started = sandbox.start();
            assert!(started.doors.is_none());
            drop(started);
            let output = sandbox.output();
            assert_eq!(
                output,
                "ENETUNREACH\nENETUNREACH\nENETUNREACH\nECONNREFUSED\n"
            );
        },
    );
}

#[test]
fn the_listeners_cannot_be_taken_over() {
    as_each_user("network::the_listeners_cannot_be_taken_over", || {
        let sandbox = Box::shell(
            "./probe bind 127.0.0.1 3128; ./probe bind 127.0.0.1 3128 reuse; ./probe bind 0.0.0.0 3128 reuse; \
             ./probe bind ::1 3129 reuse; ./probe bind 127.0.0.1 53",
        )
        .with_network();
        for answer in sandbox.output().lines() {
            assert!(answer == "EADDRINUSE" || answer == "EACCES", "{answer}");
        }
        // A server of its own is fine.
        assert_eq!(
            Box::probe(&["bind", "127.0.0.1", "8080"])
                .with_network()
                .output(),
            "ok\n"
        );
    });
}

#[test]
fn routes_and_rules_cannot_be_changed() {
    as_each_user("network::routes_and_rules_cannot_be_changed", || {
        let sandbox = Box::shell("./probe delroute; ./probe socket 16 3 12; ls /sys/class/net 2>/dev/null; cat /proc/net/dev | grep -c :").with_network();
        assert_eq!(sandbox.output(), "EPERM\nEAFNOSUPPORT\n1\n");
    });
}

#[test]
fn two_runs_have_listeners_of_their_own() {
    let (one, two) = (
        Box::probe(&["pause"]).with_network(),
        Box::probe(&["pause"]).with_network(),
    );
    let (one, two) = (one.start(), two.start());
    let (first, second) = (one.doors.as_ref().unwrap(), two.doors.as_ref().unwrap());
    // The same address twice: they lie in different namespaces.
    assert_eq!(
        first.v4.local_addr().unwrap(),
        second.v4.local_addr().unwrap()
    );
}

#[test]
fn a_peer_that_never_answers_does_not_hold_the_start_up() {
    let sandbox = Box::shell("echo quick").with_network();
    let mut started = sandbox.start();
    started.release().unwrap();
    let finished = started.wait(&mut |_, _| {});
    assert_eq!(finished.outcome, Outcome::Passed);
}
