//! Does a body pass as it comes, in both directions?

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::client::{read_answer, read_head};
use crate::support::{Plan, World, provider::Provider};

const EVENTS: &[u8] = b"GET /events HTTP/1.1\r\nHost: api.test\r\n\r\n";

async fn first_event_passes_at_once(is_http2: bool) {
    let world = World::new(Plan {
        provider: Provider {
            is_http2,
            ..Provider::default()
        },
        ..Plan::default()
    })
    .await;
    let mut stream = world.tls("api.test:443").await;
    stream.write_all(EVENTS).await.unwrap();
    let head = read_head(&mut stream).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200"));
    // The upstream sends its second event only after the first has arrived here.
    for event in ["data: one\n\n", "data: two\n\n"] {
        world.provider.send(event).await;
        let mut seen = String::new();
        while !seen.contains(event.trim_end()) {
            seen.push(char::from(stream.read_u8().await.unwrap()));
        }
    }
    drop(stream);
    // A client that goes away ends the exchange with the upstream too.
    world.provider.unheard().await;
    let event = world.final_event().await;
    assert_eq!(event.event, sdk::audit::EventKind::RequestFinished);
}

#[tokio::test]
async fn an_event_passes_before_the_stream_ends() {
    first_event_passes_at_once(false).await;
}

#[tokio::test]
async fn an_event_passes_before_a_stream_of_http2_ends() {
    first_event_passes_at_once(true).await;
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_it() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    let head =
        "PUT /v1 HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(
        read_head(&mut stream).await.unwrap(),
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 200);
    assert_eq!(world.provider.seen()[0].body, "hello");
}

#[tokio::test]
async fn an_upload_in_chunks_arrives_whole() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    let head = "POST /v1 HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = "x".repeat(60_000);
    for _ in 0..10 {
        let framed = format!("{:x}\r\n{chunk}\r\n", chunk.len());
        stream.write_all(framed.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(read_answer(&mut stream).await.unwrap().status, 200);
    assert_eq!(world.provider.seen()[0].body.len(), 600_000);
    assert_eq!(world.final_event().await.bytes_in, Some(600_000));
}

#[tokio::test]
async fn the_answer_to_head_keeps_its_length_and_has_no_body() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    for _ in 0..2 {
        stream
            .write_all(b"HEAD /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n")
            .await
            .unwrap();
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-length: 7\r\n"), "{head}");
    }
}

#[tokio::test]
async fn a_post_without_a_body_has_a_length() {
    let world = World::usual().await;
    let answer = world
        .ask("api.test:443", "POST /v1", "Content-Length: 0\r\n")
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(world.provider.seen()[0].fields["content-length"], "0");
}

#[tokio::test]
async fn a_stream_at_a_door_of_all_ends_with_its_run() {
    let world = World::usual().await;
    let mut stream = world.connect(world.shared).await;
    let request = format!(
        "GET https://api.test/events HTTP/1.1\r\nHost: api.test\r\n{}\r\n",
        world.authorization()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(
        read_head(&mut stream)
            .await
            .unwrap()
            .starts_with("HTTP/1.1 200")
    );
    world.broker.end_run(&world.new.run).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    world.provider.unheard().await;
    assert!(rest.is_empty());
}
