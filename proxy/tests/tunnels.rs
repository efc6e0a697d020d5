//! Does what passes unread pass only where its rule says, and only as long as the run lasts?

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

/// A first message of TLS, in records of this many bytes, with an extension more.
fn hello(name: &str, extension: Option<u16>, record: usize) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    let mut message = bytes.split_off(5);
    if let Some(number) = extension {
        let session = 38;
        let ciphers = session + 1 + usize::from(message[session]);
        let count = u16::from_be_bytes([message[ciphers], message[ciphers + 1]]);
        let compression = ciphers + 2 + usize::from(count);
        let all = compression + 1 + usize::from(message[compression]);
        let length = u16::from_be_bytes([message[all], message[all + 1]]) + 16;
        message[all..all + 2].copy_from_slice(&length.to_be_bytes());
        let [high, low] = number.to_be_bytes();
        // An "outer" one: its algorithms, the number of a key, and something encrypted.
        message.splice(
            all + 2..all + 2,
            [high, low, 0, 12, 0, 0, 1, 0, 1, 7, 0, 1, 9, 0, 1, 9],
        );
        let length = u32::try_from(message.len() - 4).unwrap().to_be_bytes();
        message[1..4].copy_from_slice(&length[1..]);
    }
    message
        .chunks(record)
        .flat_map(|part| {
            let length = u16::try_from(part.len()).unwrap().to_be_bytes();
            [&[0x16, 3, 1], &length[..], part].concat()
        })
        .collect()
}

/// The first byte that comes back, when the bytes are sent one by one.
async fn first_byte(world: &World, authority: &str, bytes: &[u8]) -> Option<u8> {
    let mut stream = world.tunnel(authority).await;
    for byte in bytes {
        stream.write_u8(*byte).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.read_u8().await.ok()
}

const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

#[tokio::test]
async fn a_name_that_is_hidden_in_the_hello_does_not_pass_a_tunnel() {
    let world = world().await;
    let hidden = hello("pinned.test", Some(ENCRYPTED_CLIENT_HELLO), 4096);
    let answer = first_byte(&world, "pinned.test:443", &hidden).await;
    assert_eq!(answer, Some(ALERT));
    let event = world.final_event().await;
    assert_eq!(event.code, Some(sdk::Code::AuthorityMismatch));
    for other in [Some(0xfafa), None] {
        let plain = hello("pinned.test", other, 4096);
        let answer = first_byte(&world, "pinned.test:443", &plain).await;
        assert_eq!(answer, Some(HANDSHAKE));
    }
}

#[tokio::test]
async fn a_hello_in_many_pieces_is_read_as_one() {
    for (policy, host) in [
        (POLICY, "pinned.test"),
        (crate::support::POLICY, "api.test"),
    ] {
        let authority = format!("{host}:443");
        let world = World::new(Plan {
            policy,
            hosts: &[&authority],
            ..Plan::default()
        })
        .await;
        for record in [40, 120] {
            let evil = first_byte(&world, &authority, &hello("evil.test", None, record)).await;
            assert_eq!(evil, Some(ALERT));
            let meant = first_byte(&world, &authority, &hello(host, None, record)).await;
            assert_eq!(meant, Some(HANDSHAKE));
        }
    }
}

#[tokio::test]
async fn a_hello_without_a_name_does_not_pass_a_tunnel_to_one() {
    let world = world().await;
    let nameless = hello("192.0.2.1", None, 4096);
    let answer = first_byte(&world, "pinned.test:443", &nameless).await;
    assert_eq!(answer, Some(ALERT));
}
