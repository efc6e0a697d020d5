//! Does one run get no more than its share, and wait rather than fail?

use proxy::ProxyLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::client::{exchange, read_answer};
use crate::support::{Plan, World};

async fn world(connections: usize) -> World {
    World::new(Plan {
        limits: ProxyLimits {
            connections,
            ..ProxyLimits::default()
        },
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_for_another_to_end() {
    // The run's own two doors each hold a place for the connection they wait for.
    let world = world(3).await;
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
