//! Do HTTP/1.1 and HTTP/2 meet without loss?

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::Full;
use tokio::io::AsyncWriteExt;

use crate::support::client::{Answer, exchange, read_answer};
use crate::support::provider::Provider;
use crate::support::{Plan, World};

async fn world(is_http2: bool) -> World {
    World::new(Plan {
        provider: Provider {
            is_http2,
            ..Provider::default()
        },
        ..Plan::default()
    })
    .await
}

fn post(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("https://api.test/v1?a=b")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::new(Bytes::from_static(body.as_bytes())))
        .unwrap()
}

#[tokio::test]
async fn http1_reaches_an_upstream_of_http2() {
    let world = world(true).await;
    let fields = "Content-Length: 5\r\nConnection: close, x-private\r\nX-Private: 1\r\n\r\nhello";
    let mut stream = world.tls("api.test:443").await;
    let request = format!("POST /v1?a=b HTTP/1.1\r\nHost: api.test\r\n{fields}");
    let answer = exchange(&mut stream, &request).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "welcome"));
    let seen = &world.provider.seen()[0];
    assert_eq!(
        (seen.version, seen.target.as_str()),
        (Version::HTTP_2, "/v1?a=b")
    );
    assert_eq!(seen.body, "hello");
    assert!(!seen.fields.contains_key("x-private"));
    assert!(!seen.fields.contains_key("host"));
    let event = world.final_event().await;
    assert_eq!(event.tls.unwrap().alpn.as_deref(), Some("h2"));
    assert_eq!(event.bytes_in, Some(5));
}

#[tokio::test]
async fn http2_reaches_an_upstream_of_http1() {
    let world = world(false).await;
    let answer = world
        .ask_http2("api.test:443", post("hello"))
        .await
        .unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.body()[..]),
        (200, &b"welcome"[..])
    );
    let seen = &world.provider.seen()[0];
    assert_eq!(seen.version, Version::HTTP_11);
    assert_eq!(seen.fields["host"], "api.test");
    assert_eq!(seen.fields["cookie"], "a=1; b=2");
    assert_eq!(seen.body, "hello");
}

#[tokio::test]
async fn http2_reaches_an_upstream_of_http2() {
    let world = world(true).await;
    let answer = world
        .ask_http2("api.test:443", post("hello"))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(world.provider.seen()[0].version, Version::HTTP_2);
}

#[tokio::test]
async fn many_requests_share_one_connection_of_http2() {
    let world = world(true).await;
    let asked = (0..8).map(|_| world.ask("api.test:443", "GET /v1", ""));
    let mut asked: Vec<_> = asked.map(Box::pin).collect();
    for asked in &mut asked {
        assert_eq!(asked.await.status, 200);
    }
    assert_eq!(world.provider.connections(), 1);
}

#[tokio::test]
async fn requests_one_after_another_share_one_connection_of_http1() {
    let world = world(false).await;
    let mut stream = world.tls("api.test:443").await;
    for _ in 0..5 {
        let answer = exchange(&mut stream, "GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
        assert_eq!(answer.status, 200);
    }
    assert!(
        world.provider.connections() <= 2,
        "{}",
        world.provider.connections()
    );
}

#[tokio::test]
async fn another_authority_on_a_connection_of_http2_is_refused() {
    let world = world(true).await;
    for (uri, host) in [
        ("https://evil.test/", None),
        ("https://api.test/", Some("evil.test")),
    ] {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let answer = world
            .ask_http2("api.test:443", request.body(Full::default()).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status(), 421);
        assert_eq!(answer.headers()["valetkey-denial"], "authority-mismatch");
    }
    assert!(world.provider.seen().is_empty());
}

#[tokio::test]
async fn a_refusal_reaches_a_client_of_http2() {
    let world = world(false).await;
    let request = Request::get("https://evil.test/")
        .body(Full::default())
        .unwrap();
    let answer = world.ask_http2("evil.test:443", request).await.unwrap();
    assert_eq!(answer.status(), 403);
    assert_eq!(answer.headers()["valetkey-denial"], "host-not-allowed");
}

#[tokio::test]
async fn trailers_pass_but_never_a_credential_in_them() {
    use http_body_util::BodyExt;
    let world = world(true).await;
    let stream = world.tunnel("api.test:443").await;
    let stream = world.handshake(stream, "api.test", b"h2").await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let trailers = [("x-sum", "1"), ("authorization", "Bearer stranger")]
        .into_iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect();
    let body =
        Full::new(Bytes::from_static(b"x")).with_trailers(std::future::ready(Some(Ok(trailers))));
    let request = Request::post("https://api.test/v1").body(body).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    let seen = &world.provider.seen()[0];
    let trailers = seen.trailers.as_ref().unwrap();
    assert_eq!(trailers.get("x-sum").unwrap(), "1");
    assert!(!trailers.contains_key("authorization"));
}

/// A request with a body in chunks, as far as these have come.
async fn in_chunks(chunks: &[&str]) -> (World, Answer) {
    let world = world(true).await;
    let mut stream = world.tls("api.test:443").await;
    let head = "POST /v1 HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    for chunk in chunks {
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    let answer = read_answer(&mut stream).await.unwrap();
    (world, answer)
}

#[tokio::test]
async fn an_upload_of_more_than_an_upstream_of_http2_takes_at_once_arrives_whole() {
    // What it takes of one stream is 1 MiB, until it has read it.
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, "x".repeat(60_000));
    let mut chunks = vec![chunk.as_str(); 50];
    chunks.push("0\r\n\r\n");
    let (world, answer) = in_chunks(&chunks).await;
    assert_eq!(answer.status, 200);
    assert_eq!(world.provider.seen()[0].body.len(), 3_000_000);
    assert_eq!(world.final_event().await.bytes_in, Some(3_000_000));
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_not_sent_to_its_end() {
    let (world, answer) = in_chunks(&["5\r\nhello\r\n", "no length\r\n"]).await;
    assert_eq!((answer.status, answer.code()), (400, "ambiguous-request"));
    assert!(world.provider.seen().is_empty());
}
