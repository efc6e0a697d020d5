//! What can it reach, and can I turn it off? Only what a rule names, by name, port, method and path; nothing by default.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::origin::{self, Behaviour};
use crate::support::world::greeting;
use crate::support::{Place, World};

/// A world with one host that may be asked for orders.
fn shop() -> (World, crate::support::origin::Origin) {
    let mut world = World::new();
    let origin = world.origin("shop.example", greeting());
    world.policy(
        "[[allow]]\nhost = \"shop.example\"\nmethods = [\"GET\"]\npaths = [\"/orders/**\"]\n\
         [[deny]]\nhost = \"shop.example\"\npaths = [\"/orders/secret\"]\nreason = \"orders only\"\n",
    );
    (world, origin)
}

fn fetch(world: &World, arguments: &[&str]) -> crate::support::process::Finished {
    world.run(&[&["curl", "-sS"], arguments].concat())
}

#[test]
fn a_request_that_a_rule_names_is_carried() {
    let (world, origin) = shop();
    fetch(&world, &["https://shop.example/orders/1"])
        .passed()
        .says("hello");
    assert_eq!(origin.last().target(), "/orders/1");
    assert_eq!(origin.last().authority(), "shop.example");
}

#[test]
fn another_path_is_refused() {
    let (world, origin) = shop();
    fetch(&world, &["https://shop.example/users/1"]).says("path-not-allowed");
    assert!(origin.seen().is_empty());
}

#[test]
fn another_method_is_refused() {
    let (world, origin) = shop();
    fetch(&world, &["-X", "DELETE", "https://shop.example/orders/1"]).says("method-not-allowed");
    assert!(origin.seen().is_empty());
}

#[test]
fn another_port_is_refused() {
    let (world, origin) = shop();
    let finished = fetch(&world, &["https://shop.example:8443/orders/1"]);
    assert!(finished.code() != 0 || finished.all().contains("port-not-allowed"));
    assert!(origin.seen().is_empty());
}

#[test]
fn a_deny_rule_wins_and_gives_its_reason() {
    let (world, origin) = shop();
    fetch(&world, &["https://shop.example/orders/secret"])
        .says("denied-by-rule")
        .says("orders only");
    assert!(origin.seen().is_empty());
}

#[test]
fn plain_http_is_refused_where_no_rule_says_http() {
    let (mut world, _origin) = shop();
    let plain = world.plain_origin("shop.example", greeting());
    let finished = fetch(&world, &["http://shop.example/orders/1"]);
    assert!(!finished.stdout.contains("hello"));
    assert_eq!(plain.connections(), 0);
}

#[test]
fn plain_http_is_carried_where_a_rule_says_http() {
    let mut world = World::new();
    let plain = world.plain_origin("plain.example", greeting());
    world.policy("[[allow]]\nhost = \"plain.example\"\nscheme = \"http\"\nports = [80]\n");
    fetch(&world, &["http://plain.example/x"])
        .passed()
        .says("hello");
    assert_eq!(plain.last().target(), "/x");
}

#[test]
fn a_redirect_is_not_followed() {
    let (mut world, _origin) = shop();
    let elsewhere = world.forbidden("elsewhere.example");
    let behaviour: Behaviour = std::sync::Arc::new(|_| {
        let mut answer = origin::answer(302, "text/plain", "");
        let target = "https://elsewhere.example/x".parse().unwrap();
        answer.headers_mut().insert("location", target);
        answer
    });
    world.origin("shop.example", behaviour);
    let finished = fetch(&world, &["-L", "https://shop.example/orders/1"]);
    finished.says("host-not-allowed");
    assert_eq!(elsewhere.connections(), 0);
}

#[test]
fn an_address_inside_is_refused_unless_the_owner_named_it() {
    let mut world = World::new();
    let origin = origin::Origin::start(
        Some(world.authority().server(&["inside.example"], &["http/1.1"])),
        greeting(),
    );
    world.dial_unvetted("inside.example:443", &origin.address().to_string());
    world.policy("[[allow]]\nhost = \"inside.example\"\n");
    fetch(&world, &["https://inside.example/"]).says("address-not-allowed");
    assert_eq!(origin.connections(), 0);
    world.dial("inside.example:443", &origin.address().to_string());
    fetch(&world, &["https://inside.example/"])
        .passed()
        .says("hello");
}

#[test]
fn an_upstream_with_a_foreign_certificate_is_refused() {
    let mut world = World::new();
    let stranger = crate::support::authority::Authority::new("a stranger");
    let origin = origin::Origin::start(
        Some(stranger.server(&["shop.example"], &["http/1.1"])),
        greeting(),
    );
    world.dial("shop.example:443", &origin.address().to_string());
    world.policy("[[allow]]\nhost = \"shop.example\"\n");
    fetch(&world, &["https://shop.example/"]).says("upstream-tls");
    assert!(origin.seen().is_empty());
}

#[test]
fn a_tunnel_is_carried_unread() {
    let mut world = World::new();
    let _origin = world.origin("pinned.example", greeting());
    world.policy("[[allow]]\nhost = \"pinned.example\"\nmode = \"tunnel\"\n");
    let certificate = std::fs::read_to_string(world.path("elsewhere/ca.pem")).unwrap();
    world.file("ca.pem", &certificate);
    fetch(&world, &["--cacert", "ca.pem", "https://pinned.example/"])
        .passed()
        .says("hello");
}

#[test]
fn without_a_policy_there_is_no_network() {
    let mut world = World::new();
    let origin = world.forbidden("elsewhere.example");
    let finished = fetch(&world, &["https://elsewhere.example/"]);
    assert_ne!(finished.code(), 0);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn the_network_can_be_turned_off() {
    let mut world = World::new();
    let origin = world.origin("shop.example", greeting());
    world.policy("[[allow]]\nhost = \"shop.example\"\n[sandbox]\nnetwork = \"none\"\n");
    let finished = fetch(&world, &["https://shop.example/"]);
    assert_ne!(finished.code(), 0);
    assert_eq!(origin.connections(), 0);
    world.policy("[[allow]]\nhost = \"shop.example\"\n[sandbox]\nnetwork = \"proxy\"\n");
    fetch(&world, &["https://shop.example/"])
        .passed()
        .says("hello");
}

#[test]
fn the_machines_own_services_are_out_of_reach() {
    let (world, _origin) = shop();
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    service.set_nonblocking(true).unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let program = format!(
        "import socket
for family, address in [(socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')]:
    try:
        with socket.socket(family) as s:
            s.settimeout(5)
            s.connect((address, {port}))
            s.sendall(b'hello')
            print('got', s.recv(10))
    except OSError as error:
        print('refused', error)
"
    );
    world.file("probe.py", &program);
    world.run(&["python3", "probe.py"]).passed();
    assert!(service.accept().is_err(), "the service was reached");
}

#[test]
fn datagrams_and_raw_packets_go_nowhere() {
    let (world, _origin) = shop();
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let program = format!(
        "import socket
for attempt in [
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port})),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', {port})),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
]:
    try:
        attempt()
        print('sent')
    except OSError as error:
        print('refused', error)
"
    );
    world.file("probe.py", &program);
    let finished = world.run(&["python3", "probe.py"]).passed();
    assert!(
        finished.stdout.matches("refused").count() >= 2,
        "{}",
        finished.stdout
    );
    assert!(receiver.recv(&mut [0; 8]).is_err(), "a datagram arrived");
}

#[test]
fn a_refused_name_is_answered_so_that_the_refusal_can_be_explained() {
    let (mut world, _origin) = shop();
    let forbidden = world.forbidden("elsewhere.example");
    let line = "unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy; getent hosts elsewhere.example; \
                curl -sS https://elsewhere.example/";
    world.run(&["sh", "-c", line]).says("host-not-allowed");
    assert_eq!(forbidden.connections(), 0);
}

#[test]
fn an_address_by_number_is_refused_without_proxy_variables() {
    let (world, _origin) = shop();
    let line = "unset HTTPS_PROXY https_proxy ALL_PROXY all_proxy; curl -sSk --max-time 20 https://192.0.2.7/";
    let finished = world.run(&["sh", "-c", line]);
    assert!(!finished.stdout.contains("hello"));
    assert!(
        finished.code() != 0 || finished.stdout.contains("-not-allowed"),
        "{}",
        finished.stdout
    );
}

#[test]
fn the_proxy_can_listen_on_a_unix_socket() {
    let mut world = World::new();
    let plain = world.plain_origin("plain.example", greeting());
    world.policy("[[allow]]\nhost = \"plain.example\"\nscheme = \"http\"\nports = [80]\n");
    let socket = world.path("elsewhere/proxy.sock");
    let serving = world.serve_on(&["--listen", &format!("unix:{}", socket.display())]);
    let run = serving.create_run(&world);
    let ask = |line: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let request = format!(
            "GET http://plain.example/x HTTP/1.1\r\nHost: plain.example\r\n{line}Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("").starts_with("HTTP/1.1 407"));
    assert_eq!(plain.connections(), 0);
    let basic = STANDARD.encode(format!("run:{}", run.token));
    for line in [
        format!("Proxy-Authorization: Bearer {}\r\n", run.token),
        format!("Proxy-Authorization: Bearer {}\r\n", run.alias),
        format!("Proxy-Authorization: Basic {basic}\r\n"),
    ] {
        assert!(ask(&line).contains("hello"));
    }
}

#[test]
fn the_shared_proxy_wants_a_token() {
    let (world, origin) = shop();
    let place = Place::sidecar(world);
    let proxy = place.proxy_without_token();
    let url = "https://shop.example/orders/1";
    let finished = place.run(&["curl", "-sS", "-x", &proxy, url]);
    assert_ne!(finished.code(), 0);
    assert_eq!(origin.connections(), 0);
    place.run(&["curl", "-sS", url]).passed().says("hello");
}
