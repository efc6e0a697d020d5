//! Does a run that floods the proxy get no more than its share of it?

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use hickory_proto::rr::RecordType;
use proxy::ProxyLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::names::question;
use crate::support::client::{exchange, read_answer};
use crate::support::frames::{CONTINUATION, Frames, GOAWAY, HEADERS, PING, RST_STREAM, field};
use crate::support::{Plan, World};

async fn ask_dns(stream: &mut TcpStream) {
    let bytes = question("api.test.", RecordType::A);
    let length = u16::try_from(bytes.len()).unwrap();
    stream.write_u16(length).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
    stream.read_exact(&mut answer).await.unwrap();
}

#[tokio::test]
async fn connections_that_ask_for_names_are_bounded() {
    let world = World::usual().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(world.dns_over_tcp).await.unwrap();
        ask_dns(&mut stream).await;
        open.push(stream);
    }
    let mut next = TcpStream::connect(world.dns_over_tcp).await.unwrap();
    let mut asking = Box::pin(ask_dns(&mut next));
    assert!(
        poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx)))
            .await
            .is_pending()
    );
    // That the others are still answered shows that time has passed.
    ask_dns(&mut open[0]).await;
    assert!(
        poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx)))
            .await
            .is_pending()
    );
    open.pop();
    asking.await;
}

#[tokio::test]
async fn one_who_asks_for_refused_tunnels_and_reads_no_answer_is_let_go() {
    let world = World::new(Plan {
        limits: ProxyLimits {
            header: Duration::from_millis(50),
            ..ProxyLimits::default()
        },
        ..Plan::default()
    })
    .await;
    let mut stream = world.connect(world.shared).await;
    let many = "CONNECT evil.test:22 HTTP/1.1\r\n\r\n".repeat(64);
    while stream.write_all(many.as_bytes()).await.is_ok() {}
    let mut other = world.connect(world.shared).await;
    let answer = exchange(&mut other, "CONNECT api.test:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer.status, 407);
}

#[tokio::test]
async fn a_connect_that_comes_byte_by_byte_is_read() {
    let world = World::usual().await;
    let mut stream = world.connect(world.door).await;
    let request = "\r\nCONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n";
    for byte in request.bytes() {
        stream.write_u8(byte).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(exchange(&mut stream, "").await.status, 200);
}

#[tokio::test]
async fn requests_that_are_taken_back_at_once_end_the_connection_and_each_has_one_record() {
    let world = World::usual().await;
    let mut frames = Frames::open(&world).await;
    let mut stream = 1;
    while stream < 40_000 {
        // END_STREAM, END_HEADERS.
        let is_open = frames.send(HEADERS, 0x5, stream, get().as_bytes()).await
            && frames.send(RST_STREAM, 0, stream, &[0, 0, 0, 8]).await;
        if !is_open {
            break;
        }
        stream += 2;
    }
    let mut is_cut_off = stream < 40_000;
    while !is_cut_off && let Some(frame) = frames.read().await {
        is_cut_off = frame.kind == GOAWAY;
    }
    assert!(is_cut_off);
    still_answers(&world).await;
    let mut finals: Vec<String> = world.final_requests().await;
    let all = finals.len();
    finals.sort();
    finals.dedup();
    assert_eq!(finals.len(), all);
}

#[tokio::test]
async fn a_header_of_http2_without_end_is_cut_off() {
    let world = World::usual().await;
    let mut frames = Frames::open(&world).await;
    frames.send(HEADERS, 0, 1, get().as_bytes()).await;
    let more = field("x", &"y".repeat(100)).repeat(100);
    while frames.send(CONTINUATION, 0, 1, more.as_bytes()).await {}
    still_answers(&world).await;
}

#[tokio::test]
async fn pings_without_end_do_no_harm_to_others() {
    let world = World::usual().await;
    let mut frames = Frames::open(&world).await;
    for _ in 0..1000 {
        if !frames.send(PING, 0, 0, b"12345678").await {
            break;
        }
    }
    still_answers(&world).await;
}

async fn still_answers(world: &World) {
    let answer = world.ask("api.test:443", "GET /v1", "").await;
    assert_eq!(answer.status, 200);
}

fn get() -> String {
    [
        field(":method", "GET"),
        field(":scheme", "https"),
        field(":authority", "api.test"),
        field(":path", "/v1"),
    ]
    .concat()
}

#[tokio::test]
async fn a_stranger_who_asks_again_and_again_is_let_go() {
    let world = World::new(Plan {
        limits: ProxyLimits {
            idle: Duration::from_millis(50),
            ..ProxyLimits::default()
        },
        ..Plan::default()
    })
    .await;
    for request in [
        "CONNECT api.test:443 HTTP/1.1\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
    ] {
        let mut stream = world.connect(world.shared).await;
        while stream.write_all(request.as_bytes()).await.is_ok() {
            match read_answer(&mut stream).await {
                Some(answer) => assert_eq!(answer.status, 407),
                None => break,
            }
        }
    }
}
