//! Does a connection to an address of our making go to the name it stands for, and to no other?

use std::net::SocketAddr;

use hickory_proto::rr::RecordType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::names::{address, ask, question};
use crate::support::client::exchange;
use crate::support::{Plan, World};

/// A connection that the run made to a port of a name, after asking its resolver.
async fn connect(world: &World, name: &str, port: u16) -> TcpStream {
    let answer = ask(world.dns, &question(name, RecordType::A)).await;
    capture(world, SocketAddr::new(address(&answer), port)).await
}

async fn capture(world: &World, original: SocketAddr) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (server, _) = listener.accept().await.unwrap();
    world.open.serve_captured(server, original);
    client
}

#[tokio::test]
async fn a_program_that_knows_no_proxy_gets_its_answer() {
    let world = World::usual().await;
    let stream = connect(&world, "api.test.", 443).await;
    let mut stream = world
        .handshake(stream, "api.test", b"http/1.1")
        .await
        .unwrap();
    let answer = exchange(&mut stream, "GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "welcome"));
    let event = world.final_event().await;
    assert_eq!(event.request.unwrap().door, sdk::audit::Door::Transparent);
}

#[tokio::test]
async fn a_program_that_knows_no_proxy_is_told_why_it_is_refused() {
    let world = World::usual().await;
    let stream = connect(&world, "evil.test.", 443).await;
    let mut stream = world
        .handshake(stream, "evil.test", b"http/1.1")
        .await
        .unwrap();
    let answer = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert_eq!(answer.code(), "host-not-allowed");
    let mut stream = connect(&world, "evil.test.", 80).await;
    let answer = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert_eq!(answer.code(), "host-not-allowed");
}

#[tokio::test]
async fn another_name_than_the_one_asked_for_is_refused() {
    let world = World::usual().await;
    let stream = connect(&world, "evil.test.", 443).await;
    let error = world
        .handshake(stream, "api.test", b"http/1.1")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    let mut stream = connect(&world, "evil.test.", 80).await;
    let answer = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(answer.code(), "authority-mismatch");
    assert!(world.provider.seen().is_empty());
}

#[tokio::test]
async fn an_address_that_stands_for_no_name_leads_nowhere() {
    let world = World::usual().await;
    let mut stream = capture(&world, "198.18.9.9:443".parse().unwrap()).await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    assert_eq!(
        world.final_event().await.code,
        Some(sdk::Code::HostNotAllowed)
    );
}

#[tokio::test]
async fn an_address_of_somebody_else_is_never_dialled_itself() {
    let world = World::usual().await;
    let stream = capture(&world, "192.0.2.1:443".parse().unwrap()).await;
    let mut stream = world
        .handshake(stream, "api.test", b"http/1.1")
        .await
        .unwrap();
    let answer = exchange(&mut stream, "GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(answer.status, 200);
    let event = world.final_event().await;
    assert_eq!(
        event.request.unwrap().ip,
        Some("127.0.0.1".parse().unwrap())
    );
}

#[tokio::test]
async fn another_protocol_to_an_address_by_number_is_refused_and_named_in_the_log() {
    let world = World::usual().await;
    for original in ["192.0.2.1:22", "[2001:db8::1]:22"] {
        let mut stream = capture(&world, original.parse().unwrap()).await;
        stream.write_all(b"SSH-2.0-agent\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
    }
    let refused: Vec<_> = world
        .events()
        .await
        .into_iter()
        .filter(|event| event.event == sdk::audit::EventKind::RequestDenied)
        .map(|event| {
            let request = event.request.unwrap();
            (event.code.unwrap(), request.host.unwrap(), request.port)
        })
        .collect();
    let expected =
        ["192.0.2.1", "2001:db8::1"].map(|host| (sdk::Code::HostNotAllowed, host.into(), Some(22)));
    assert_eq!(refused, expected);
}

#[tokio::test]
async fn another_protocol_to_an_address_that_a_rule_names_is_ambiguous() {
    let world = World::new(Plan {
        policy: "version = 1\n[[allow]]\nhost = \"192.0.2.1\"\n",
        ..Plan::default()
    })
    .await;
    let mut stream = capture(&world, "192.0.2.1:443".parse().unwrap()).await;
    stream.write_all(b"SSH-2.0-agent\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let event = world.final_event().await;
    assert_eq!(event.code, Some(sdk::Code::AmbiguousRequest));
    assert_eq!(event.request.unwrap().host.as_deref(), Some("192.0.2.1"));
}

#[tokio::test]
async fn a_silent_connection_to_an_address_is_named_in_the_log() {
    let world = World::usual().await;
    drop(capture(&world, "192.0.2.1:3306".parse().unwrap()).await);
    let event = world.final_event().await;
    assert_eq!(event.code, Some(sdk::Code::HostNotAllowed));
    assert_eq!(event.request.unwrap().host.as_deref(), Some("192.0.2.1"));
}
