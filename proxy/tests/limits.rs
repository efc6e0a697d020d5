//! Does one run get no more than its share, and wait rather than fail?

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use proxy::ProxyLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::client::{exchange, read_answer, read_head};
use crate::support::{Plan, World};

async fn world(limits: ProxyLimits) -> World {
    World::new(Plan {
        limits,
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_for_another_to_end() {
    let world = world(ProxyLimits {
        connections: 1,
        ..ProxyLimits::default()
    })
    .await;
    let connect = format!(
        "CONNECT api.test:443 HTTP/1.1\r\n{}\r\n",
        world.authorization()
    );
    let mut first = world.connect(world.shared).await;
    assert_eq!(exchange(&mut first, &connect).await.status, 200);
    let mut second = world.connect(world.shared).await;
    second.write_all(connect.as_bytes()).await.unwrap();
    let mut answer = Box::pin(read_answer(&mut second));
    // Nothing comes while the first is open; that the door still answers others shows that time has passed.
    let mut other = world.connect(world.shared).await;
    let refused = exchange(&mut other, "CONNECT api.test:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(refused.status, 407);
    assert!(
        std::future::poll_fn(|cx| std::task::Poll::Ready(answer.as_mut().poll(cx)))
            .await
            .is_pending()
    );
    drop(first);
    assert_eq!(answer.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_request_beyond_the_limit_waits_for_the_end_of_another_answer() {
    let world = world(ProxyLimits {
        requests: 1,
        ..ProxyLimits::default()
    })
    .await;
    let mut first = world.tls("api.test:443").await;
    let events = b"GET /events HTTP/1.1\r\nHost: api.test\r\n\r\n";
    first.write_all(events).await.unwrap();
    assert!(read_head(&mut first).await.unwrap().contains(" 200 "));
    let mut second = world.tls("api.test:443").await;
    let request = b"GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n";
    second.write_all(request).await.unwrap();
    let mut answer = Box::pin(read_answer(&mut second));
    // The first answer's header has come, but it has not ended. What it still brings shows that time has passed.
    for _ in 0..3 {
        world.provider.send("data: more\n\n").await;
        let mut seen = Vec::new();
        while !seen.ends_with(b"more\n\n") {
            seen.push(first.read_u8().await.unwrap());
        }
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(answer.as_mut().poll(cx)))
                .await
                .is_pending()
        );
    }
    assert_eq!(world.provider.seen().len(), 1);
    drop(first);
    assert_eq!(answer.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_with_a_narrow_window_carries_a_long_upload() {
    let world = world(ProxyLimits {
        wide: 0,
        ..ProxyLimits::default()
    })
    .await;
    let body = Bytes::from(vec![b'x'; 1 << 20]);
    let request = Request::post("https://api.test/v1")
        .body(Full::new(body))
        .unwrap();
    let answer = world.ask_http2("api.test:443", request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(world.provider.seen()[0].body.len(), 1 << 20);
}

#[tokio::test]
async fn a_header_that_is_too_long_is_refused() {
    let world = World::usual().await;
    let long = "x".repeat(70_000);
    let mut stream = world.tls("api.test:443").await;
    let request = format!("GET /v1 HTTP/1.1\r\nHost: api.test\r\nX-Long: {long}\r\n\r\n");
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 431"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let many: String = (0..200)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    assert_eq!(
        world.ask("api.test:443", "GET /v1", &many).await.status,
        431
    );
    assert!(world.provider.seen().is_empty());
}

#[tokio::test]
async fn strangers_keep_nobody_out_who_has_shown_a_token() {
    let world = world(ProxyLimits {
        strangers: 1,
        ..ProxyLimits::default()
    })
    .await;
    let connect = format!(
        "CONNECT api.test:443 HTTP/1.1\r\n{}\r\n",
        world.authorization()
    );
    let plain = format!(
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n{}\r\n",
        world.authorization()
    );
    // Neither is a stranger any more once it was answered.
    let mut first = world.connect(world.shared).await;
    assert_eq!(exchange(&mut first, &connect).await.status, 200);
    let mut second = world.connect(world.shared).await;
    assert_eq!(exchange(&mut second, &plain).await.status, 403);
    let mut stranger = world.connect(world.shared).await;
    let without = "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n";
    assert_eq!(exchange(&mut stranger, without).await.status, 407);
    let mut next = world.connect(world.shared).await;
    next.write_all(connect.as_bytes()).await.unwrap();
    let mut answer = Box::pin(read_answer(&mut next));
    // That another is answered shows that time has passed.
    assert_eq!(exchange(&mut second, &plain).await.status, 403);
    assert!(
        std::future::poll_fn(|cx| std::task::Poll::Ready(answer.as_mut().poll(cx)))
            .await
            .is_pending()
    );
    drop(stranger);
    assert_eq!(answer.await.unwrap().status, 200);
}
