//! E: the network, as far as the launcher keeps it. What the proxy keeps is in the product's tests.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use launcher::Layer;
use launcher::Layer::{Capabilities, Capture, Landlock, NetworkNamespace};

use super::{Open, Way, answer, as_both, attempt, sandbox, try_all};

#[test]
fn services_of_the_hosts_loopback_are_reached_only_without_the_namespace() {
    as_both(
        "escapes::network::services_of_the_hosts_loopback_are_reached_only_without_the_namespace",
        || {
            let service = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = service.local_addr().unwrap().port();
            std::thread::spawn(move || {
                for connection in service.incoming() {
                    let _ = connection.unwrap().write_all(b"here");
                }
            });
            let line = format!("./probe connect 127.0.0.1 {port}");
            assert_eq!(attempt(&line, &[]), "ECONNREFUSED", "E1, 14");
            assert_eq!(attempt(&line, &[NetworkNamespace]), "here", "E1, 14");
        },
    );
}

#[test]
fn a_resolver_outside_is_asked_only_without_the_namespace() {
    as_both(
        "escapes::network::a_resolver_outside_is_asked_only_without_the_namespace",
        || {
            // One that answers whatever it is asked, with the question: data would go out in names.
            let resolver = UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = resolver.local_addr().unwrap().port();
            std::thread::spawn(move || {
                let mut question = [0; 512];
                while let Ok((length, from)) = resolver.recv_from(&mut question) {
                    let _ = resolver.send_to(&question[..length], from);
                }
            });
            let line = format!("./probe udp 127.0.0.1 {port}");
            assert_eq!(attempt(&line, &[]), "ECONNREFUSED", "E3");
            assert_eq!(attempt(&line, &[NetworkNamespace]), "ping", "E3");
        },
    );
}

#[test]
fn abstract_sockets_of_the_host_are_kept_away_by_the_namespace_and_by_landlock() {
    as_both(
        "escapes::network::abstract_sockets_of_the_host_are_kept_away_by_the_namespace_and_by_landlock",
        || {
            let name = format!("valetkey-test-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            let _listening = UnixListener::bind_addr(&address).unwrap();
            let line = format!("./probe abstract {name}");
            assert_eq!(attempt(&line, &[]), "ECONNREFUSED", "E9, 12");
            assert_eq!(attempt(&line, &[NetworkNamespace]), "EPERM", "E9, 12");
            let open = attempt(&line, &[NetworkNamespace, Landlock]);
            assert_eq!(open, "ok", "E9, 12");
        },
    );
}

#[test]
fn a_foreign_address_is_the_runs_own_listener_only_with_the_capture() {
    as_both(
        "escapes::network::a_foreign_address_is_the_runs_own_listener_only_with_the_capture",
        || {
            let connect = |off: &[Layer]| {
                // No proxy variable is set, nor looked at.
                let line = "./probe connect 169.254.169.254 80";
                let sandbox = sandbox(line, off).with_network();
                let mut started = sandbox.start();
                let doors = started.doors.take().unwrap();
                started.release().unwrap();
                std::thread::spawn(move || {
                    for connection in doors.v4.incoming() {
                        let _ = connection.unwrap().write_all(b"door");
                    }
                });
                answer(&started.wait(&mut |_, _| {}))
            };
            assert_eq!(connect(&[]), "door", "E2, E8");
            // Still nowhere else: it is an address of the sandbox's own loopback.
            assert_eq!(connect(&[Capture]), "ECONNREFUSED", "E2, E8");
        },
    );
}

#[test]
fn nothing_else_is_there() {
    try_all(
        "escapes::network::nothing_else_is_there",
        &[
            Way {
                row: "E11: nowhere to go",
                line: "./probe connect 192.0.2.1 80; ./probe udp 192.0.2.1 53",
                closed: &["ENETUNREACH\nENETUNREACH"],
                layers: &[Capabilities],
                open: Open::Never("the namespace has no way out; a test does not try the host's"),
            },
            Way {
                row: "54: interfaces",
                line: "echo $(tail -n +3 /proc/net/dev | cut -d : -f 1)",
                closed: &["lo"],
                layers: &[NetworkNamespace],
                open: Open::Answers(&["*"]),
            },
        ],
    );
}

#[test]
fn routes_are_changed_only_with_capabilities() {
    as_both(
        "escapes::network::routes_are_changed_only_with_capabilities",
        || {
            let route = |off| answer(&sandbox("./probe delroute", off).with_network().run());
            assert_eq!(route(&[]), "EPERM", "E4");
            assert_eq!(route(&[Capabilities]), "ok", "E4");
        },
    );
}
