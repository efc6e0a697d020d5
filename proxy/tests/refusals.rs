//! Does the code that asked learn why it was refused, and does nothing happen for it?

use crate::support::World;
use crate::support::client::exchange;

#[tokio::test]
async fn a_host_outside_the_policy_is_refused_inside_tls() {
    let world = World::usual().await;
    let answer = world.ask("evil.test:443", "GET /", "").await;
    assert_eq!((answer.status, answer.code()), (403, "host-not-allowed"));
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    let denial: sdk::Denial = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(denial.host.as_deref(), Some("evil.test"));
    assert_eq!(denial.code, sdk::Code::HostNotAllowed);
    assert!(
        answer
            .field("proxy-status")
            .unwrap()
            .contains("http_request_denied")
    );
    let event = world.final_event().await;
    assert_eq!(event.code, Some(sdk::Code::HostNotAllowed));
    assert_eq!(world.provider.connections(), 0);
}

#[tokio::test]
async fn a_refused_port_that_nobody_speaks_tls_on_is_refused_at_once() {
    let world = World::usual().await;
    let mut stream = world.connect(world.door).await;
    let answer = exchange(&mut stream, "CONNECT evil.test:22 HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer.status, 403);
    assert!(
        answer
            .head
            .starts_with("HTTP/1.1 403 host-not-allowed: evil.test\r\n")
    );
}

#[tokio::test]
async fn a_deny_tells_its_reason_and_its_neighbour_passes() {
    let world = World::usual().await;
    let denied = world.ask("api.test:443", "GET /denied", "").await;
    assert_eq!(denied.code(), "denied-by-rule");
    assert!(denied.body.contains("because a test says so"));
    assert_eq!(
        world.ask("api.test:443", "GET /allowed", "").await.status,
        200
    );
}

#[tokio::test]
async fn two_names_for_one_destination_are_refused() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    let answer = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n").await;
    assert_eq!((answer.status, answer.code()), (421, "authority-mismatch"));
    let answer = exchange(&mut stream, "GET / HTTP/1.1\r\nHost: api.test:443\r\n\r\n").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn another_name_in_tls_is_refused_with_an_alert() {
    let world = World::usual().await;
    let stream = world.tunnel("api.test:443").await;
    let error = world
        .handshake(stream, "evil.test", b"http/1.1")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    assert_eq!(
        world.final_event().await.code,
        Some(sdk::Code::AuthorityMismatch)
    );
}

#[tokio::test]
async fn a_method_that_gives_the_key_back_is_refused() {
    let world = World::usual().await;
    for method in ["TRACE", "TRACK"] {
        let answer = world
            .ask("api.test:443", &format!("{method} /v1"), "")
            .await;
        assert_eq!((answer.status, answer.code()), (403, "method-not-allowed"));
    }
    assert_eq!(
        world.ask("api.test:443", "OPTIONS /v1", "").await.status,
        200
    );
}

#[tokio::test]
async fn an_upgrade_is_refused_and_one_to_http2_declined() {
    let world = World::usual().await;
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGVzdA==\r\n";
    let answer = world.ask("api.test:443", "GET /v1", websocket).await;
    assert_eq!((answer.status, answer.code()), (403, "upgrade-not-allowed"));
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    assert_eq!(world.ask("api.test:443", "GET /v1", h2c).await.status, 200);
    assert!(!world.provider.seen()[0].fields.contains_key("upgrade"));
}

#[tokio::test]
async fn grpc_is_refused_in_its_own_way() {
    let world = World::usual().await;
    let fields = "Content-Type: application/grpc\r\n";
    let answer = world.ask("evil.test:443", "POST /a.B/C", fields).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("grpc-status"), Some("7"));
    assert_eq!(answer.field("grpc-message"), Some("host-not-allowed"));
}

#[tokio::test]
async fn the_probe_is_refused() {
    let world = World::usual().await;
    world.proxy.negative_probe().await.unwrap();
}

#[tokio::test]
async fn what_an_upstream_says_about_other_ways_is_dropped() {
    let world = World::usual().await;
    let answer = world.ask("api.test:443", "GET /v1", "").await;
    assert_eq!(answer.field("alt-svc"), None);
    assert_eq!(answer.field("x-answer"), Some("yes"));
}

#[tokio::test]
async fn a_tunnel_in_store_is_no_refusal_but_one_to_a_refused_host_is() {
    let world = World::usual().await;
    drop(world.tunnel("api.test:443").await);
    drop(world.tunnel("evil.test:443").await);
    // There is one final event only, and it is of the other host.
    let event = world.final_event().await;
    assert_eq!(event.code, Some(sdk::Code::HostNotAllowed));
    assert_eq!(event.request.unwrap().host.as_deref(), Some("evil.test"));
}
