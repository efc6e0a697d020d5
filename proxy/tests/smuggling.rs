//! Does every byte have one meaning? Cases of request smuggling, byte for byte.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::World;
use crate::support::client::exchange;

/// Sends bytes inside a tunnel, and says nothing more; what arrived upstream is what counts.
async fn inside(world: &World, bytes: &str) -> String {
    let mut stream = world.tls("api.test:443").await;
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

const HEAD: &str = "POST /v1 HTTP/1.1\r\nHost: api.test\r\n";
const SECOND: &str = "GET /smuggled HTTP/1.1\r\nHost: api.test\r\n\r\n";

#[tokio::test]
async fn a_length_that_can_be_read_in_two_ways_forwards_nothing() {
    let world = World::usual().await;
    for fields in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 0\r\nContent-Length: 43\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 1_0\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Content-Length : 5\r\n",
        "Content-Length: 5 5\r\n",
        "X: a\rSmuggled: yes\r\n",
        "X: a\0b\r\n",
        "NoColonHere\r\n",
        ": empty\r\n",
        "Host: evil.test\r\n",
    ] {
        let answer = inside(&world, &format!("{HEAD}{fields}\r\n0\r\n\r\n{SECOND}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{fields:?}: {answer}");
        assert!(world.provider.seen().is_empty(), "{fields:?}");
    }
}

#[tokio::test]
async fn a_chunk_that_is_none_does_not_start_a_second_request() {
    let world = World::usual().await;
    for body in [
        "+5\r\nAAAAA\r\n0\r\n\r\n",
        "-0\r\n\r\n",
        "10000000000000005\r\nAAAAA\r\n0\r\n\r\n",
        "2\r\nAAAAA\r\n0\r\n\r\n",
    ] {
        let bytes = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{body}{SECOND}");
        inside(&world, &bytes).await;
        let seen = world.provider.seen();
        assert!(
            seen.iter().all(|seen| seen.target != "/smuggled"),
            "{body:?}: {seen:?}"
        );
    }
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_not_blamed_on_the_upstream() {
    for body in ["-0\r\n\r\n", "5\r\nAAAAABBBBB"] {
        let world = World::usual().await;
        let bytes = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{body}");
        inside(&world, &bytes).await;
        let event = world.final_event().await;
        assert_eq!(event.code, Some(sdk::Code::AmbiguousRequest), "{body:?}");
    }
}

#[tokio::test]
async fn one_clear_length_passes() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    for body in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let answer = exchange(&mut stream, &format!("{HEAD}{body}")).await;
        assert_eq!(answer.status, 200, "{body:?}");
    }
    assert!(
        world
            .provider
            .seen()
            .iter()
            .all(|seen| seen.body == "hello")
    );
}

#[tokio::test]
async fn a_target_or_host_that_can_be_read_in_two_ways_is_refused() {
    let world = World::usual().await;
    for line in [
        "GET http://api.test@evil.test/ HTTP/1.1",
        "GET http://evil.test\\@api.test/ HTTP/1.1",
        "GET http://api.test%00.evil.test/ HTTP/1.1",
        "GET http://:80/ HTTP/1.1",
        "GET /origin-form HTTP/1.1",
        "GET ftp://api.test/ HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET api.test:443 HTTP/1.1",
        "CONNECT api.test:65536 HTTP/1.1",
        "CONNECT api.test:https HTTP/1.1",
        "CONNECT api.test HTTP/1.1",
        "CONNECT :443 HTTP/1.1",
        "CONNECT [api.test]:443 HTTP/1.1",
        "CONNECT api..test:443 HTTP/1.1",
        "CONNECT *.test:443 HTTP/1.1",
        "CONNECT user:x@api.test:443 HTTP/1.1",
    ] {
        let mut stream = world.connect(world.door).await;
        let answer = exchange(&mut stream, &format!("{line}\r\n\r\n")).await;
        assert_eq!(answer.status, 400, "{line}");
    }
    assert_eq!(world.provider.connections(), 0);
}

#[tokio::test]
async fn a_connect_with_a_body_is_refused() {
    let world = World::usual().await;
    for field in [
        "Content-Length: 5\r\n\r\nHELLO",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        let mut stream = world.connect(world.door).await;
        let answer = exchange(
            &mut stream,
            &format!("CONNECT api.test:443 HTTP/1.1\r\n{field}"),
        )
        .await;
        assert_eq!(answer.code(), "ambiguous-request");
    }
}

#[tokio::test]
async fn another_protocol_at_the_door_gets_no_answer() {
    let world = World::usual().await;
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x05\x01\x00",
        b"\x04\x01GH\x7f\0\0\x03\0",
        b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\0\x01\0\x02",
    ] {
        let mut stream = world.connect(world.door).await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"),
            "{bytes:?}"
        );
    }
    assert!(world.provider.seen().is_empty());
}

#[tokio::test]
async fn plain_bytes_in_a_tunnel_for_tls_are_refused() {
    let world = World::usual().await;
    let mut stream = world.tunnel("api.test:443").await;
    let answer = exchange(&mut stream, "GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(answer.code(), "port-not-allowed");
    let mut stream = world.tunnel("api.test:443").await;
    stream.write_all(b"\x00\x01\x02").await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    assert!(world.provider.seen().is_empty());
}
