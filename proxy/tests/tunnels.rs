//! Does what passes unread pass only where its rule says, and only as long as the run lasts?

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio_rustls::TlsConnector;

use crate::support::client::exchange;
use crate::support::{Plan, World};

const POLICY: &str = "version = 1\n[[allow]]\nhost = \"pinned.test\"\nmode = \"tunnel\"\n";

async fn world() -> World {
    World::new(Plan {
        policy: POLICY,
        hosts: &["pinned.test:443"],
        ..Plan::default()
    })
    .await
}

/// TLS to the provider itself, through the tunnel.
async fn handshake(
    world: &World,
    name: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let stream = world.tunnel("pinned.test:443").await;
    let mut roots = RootCertStore::empty();
    let (_, errors) = roots.add_parsable_certificates([world.root.clone()]);
    assert_eq!(errors, 0);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

#[tokio::test]
async fn a_tunnel_passes_the_upstreams_own_tls() {
    let world = world().await;
    let mut stream = handshake(&world, "pinned.test").await.unwrap();
    let request = "GET /open HTTP/1.1\r\nHost: pinned.test\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(&mut stream, request).await.status, 200);
    drop(stream);
    let event = world.final_event().await;
    assert_eq!(event.request.unwrap().method.as_deref(), Some("CONNECT"));
    assert!(event.bytes_out.unwrap() > 0);
}

#[tokio::test]
async fn another_name_in_a_tunnel_is_refused() {
    let world = world().await;
    handshake(&world, "evil.test").await.unwrap_err();
    let event = world.final_event().await;
    assert_eq!(event.code, Some(sdk::Code::AuthorityMismatch));
}

#[tokio::test]
async fn a_tunnel_ends_with_its_run() {
    let world = world().await;
    let mut stream = handshake(&world, "pinned.test").await.unwrap();
    world.broker.end_run(&world.new.run).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}
