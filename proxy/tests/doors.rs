//! Is every door served alike?

use std::net::SocketAddr;
use std::sync::Arc;

use proxy::Listener;
use tokio::net::{TcpStream, UnixListener, UnixStream};

use crate::support::client::exchange;
use crate::support::provider::Provider;
use crate::support::{POLICY, Plan, World};

const OPEN_HTTP: &str =
    "version = 1\n[[allow]]\nhost = \"open.test\"\nscheme = \"http\"\nports = [80]\n";

async fn plain_world() -> World {
    World::new(Plan {
        policy: OPEN_HTTP,
        hosts: &["open.test:80"],
        provider: Provider {
            is_tls: false,
            ..Provider::default()
        },
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn plain_http_passes_in_absolute_form() {
    let world = plain_world().await;
    let mut stream = world.connect(world.shared).await;
    let ask = |host: &str| {
        format!(
            "GET http://{host}/open HTTP/1.1\r\nHost: {host}\r\n{}\r\n",
            world.authorization()
        )
    };
    assert_eq!(exchange(&mut stream, &ask("open.test")).await.status, 200);
    assert_eq!(
        exchange(&mut stream, &ask("evil.test")).await.code(),
        "host-not-allowed"
    );
    assert_eq!(
        exchange(&mut stream, &ask("OPEN.Test.:80")).await.status,
        200
    );
    assert_eq!(world.provider.seen()[1].fields["host"], "open.test");
}

#[tokio::test]
async fn https_passes_in_absolute_form_too() {
    let world = World::usual().await;
    let mut stream = world.connect(world.shared).await;
    let request = format!(
        "GET https://api.test/v1 HTTP/1.1\r\nHost: api.test\r\n{}\r\n",
        world.authorization()
    );
    let answer = exchange(&mut stream, &request).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "welcome"));
}

#[tokio::test]
async fn a_host_that_differs_from_the_url_is_refused() {
    let world = plain_world().await;
    let mut stream = world.connect(world.door).await;
    let request = "GET http://open.test/open HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    assert_eq!(
        exchange(&mut stream, request).await.code(),
        "authority-mismatch"
    );
    assert!(world.provider.seen().is_empty());
}

#[tokio::test]
async fn plain_http_passes_through_a_tunnel_to_port_80() {
    let world = plain_world().await;
    let mut stream = world.tunnel("open.test:80").await;
    let answer = exchange(&mut stream, "GET /open HTTP/1.1\r\nHost: open.test\r\n\r\n").await;
    assert_eq!(answer.status, 200);
    let inside = "GET http://open.test/open HTTP/1.1\r\nHost: open.test\r\n\r\n";
    assert_eq!(
        exchange(&mut stream, inside).await.code(),
        "ambiguous-request"
    );
}

#[tokio::test]
async fn a_unix_socket_is_a_door() {
    let world = World::usual().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let serving = world.proxy.clone();
    tokio::spawn(async move {
        serving
            .serve_shared(Listener::Unix(listener), std::future::pending())
            .await;
    });
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let request = format!(
        "CONNECT api.test:443 HTTP/1.1\r\n{}\r\n",
        world.authorization()
    );
    assert_eq!(exchange(&mut stream, &request).await.status, 200);
    let mut stream = world
        .handshake(stream, "api.test", b"http/1.1")
        .await
        .unwrap();
    let answer = exchange(&mut stream, "GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(answer.status, 200);
}

fn captured(world: &World) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], world.captured))
}

async fn world_with_captured_port() -> World {
    let policy = POLICY.replace("ports = [443]", "ports = [443, {CAPTURED}]");
    let secrets = "[api]\nhosts = [\"api.test\"]\nports = [443, {CAPTURED}]\ninject = \"bearer\"\nsource = { file = \"{KEY}\" }\n";
    World::new(Plan {
        policy: &policy,
        secrets,
        hosts: &["api.test:443", "api.test:{CAPTURED}"],
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn a_captured_connection_goes_where_its_tls_says() {
    let world = world_with_captured_port().await;
    let stream = TcpStream::connect(captured(&world)).await.unwrap();
    let mut stream = world
        .handshake(stream, "api.test", b"http/1.1")
        .await
        .unwrap();
    let host = format!("api.test:{}", world.captured);
    let request = format!("GET /v1 HTTP/1.1\r\nHost: {host}\r\n\r\n");
    assert_eq!(exchange(&mut stream, &request).await.status, 200);
    let event = world.final_event().await;
    assert_eq!(event.request.unwrap().door, sdk::audit::Door::Transparent);
}

#[tokio::test]
async fn a_captured_connection_to_a_host_outside_the_policy_is_told_why() {
    let world = world_with_captured_port().await;
    let stream = TcpStream::connect(captured(&world)).await.unwrap();
    let mut stream = world
        .handshake(stream, "evil.test", b"http/1.1")
        .await
        .unwrap();
    let host = format!("evil.test:{}", world.captured);
    let request = format!("GET /v1 HTTP/1.1\r\nHost: {host}\r\n\r\n");
    assert_eq!(
        exchange(&mut stream, &request).await.code(),
        "host-not-allowed"
    );
    assert_eq!(world.provider.connections(), 0);
}

#[tokio::test]
async fn captured_plain_http_goes_where_its_host_says() {
    let world = World::usual().await;
    let mut stream = TcpStream::connect(captured(&world)).await.unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: evil.test:{}\r\n\r\n",
        world.captured
    );
    assert_eq!(
        exchange(&mut stream, &request).await.code(),
        "host-not-allowed"
    );
    let other = "GET / HTTP/1.1\r\nHost: evil.test:1\r\n\r\n";
    assert_eq!(
        exchange(&mut stream, other).await.code(),
        "authority-mismatch"
    );
}

#[tokio::test]
async fn a_door_of_a_run_is_closed_when_the_run_ends() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    world.broker.end_run(&world.new.run).unwrap();
    assert!(
        crate::support::client::read_head(&mut stream)
            .await
            .is_none()
    );
    let _ = Arc::clone(&world.new.run);
}
