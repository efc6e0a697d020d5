//! Sending a case to the proxy byte for byte, and keeping what comes back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::case::{Case, Input, Inside};
use super::http2;
use crate::support::serving::Sidecar;

/// A way to the proxy, with a run's token.
pub(super) struct Wire {
    address: String,
    token: String,
    roots: RootCertStore,
}

/// What came back.
#[derive(Default)]
pub(super) struct Answer {
    /// The bytes outside any tunnel.
    pub(super) outer: Vec<u8>,
    /// The bytes inside a tunnel.
    pub(super) inner: Vec<u8>,
}

impl Answer {
    /// The status of the first answer: of the tunnel's inside once there is a tunnel, where silence has none.
    pub(super) fn status(&self, case: &Case) -> Option<u16> {
        let is_tunnel = matches!(case.input, Input::Tunnel { .. });
        let text = match is_tunnel && self.outer.starts_with(b"HTTP/1.1 200") {
            true => &self.inner,
            false => &self.outer,
        };
        std::str::from_utf8(text.get(9..12)?).ok()?.parse().ok()
    }

    pub(super) fn all(&self) -> Vec<u8> {
        [self.outer.as_slice(), &self.inner].concat()
    }
}

impl Wire {
    pub(super) fn new(address: &str, run: &Sidecar) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(run.ca_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        Self {
            address: address.to_owned(),
            token: run.token.clone(),
            roots,
        }
    }

    pub(super) fn play(&self, case: &Case) -> Answer {
        let mut answer = Answer::default();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // Only bounds how long silence is listened to; a right answer never waits for it.
        let patience = if case.expects("ok") { 20_000 } else { 700 };
        stream
            .set_read_timeout(Some(Duration::from_millis(patience)))
            .unwrap();
        match &case.input {
            Input::Raw(bytes) => {
                let bytes = self.fill_in(bytes);
                let _ = stream.write_all(&bytes);
                answer.outer = read_answers(&mut stream, case.expects("ok"));
            }
            Input::Tunnel {
                connect,
                sni,
                inside,
            } => {
                let head = format!(
                    "CONNECT {connect} HTTP/1.1\r\nHost: {connect}\r\nProxy-Authorization: Bearer {}\r\n\r\n",
                    self.token
                );
                let _ = stream.write_all(head.as_bytes());
                answer.outer = read_head(&mut stream);
                if answer.outer.starts_with(b"HTTP/1.1 200") {
                    answer.inner = self.inside(stream, sni, inside, case.expects("ok"));
                }
            }
        }
        answer
    }

    fn inside(&self, mut stream: TcpStream, sni: &str, inside: &Inside, one: bool) -> Vec<u8> {
        match inside {
            Inside::Plain(bytes) => {
                let _ = stream.write_all(&self.fill_in(bytes));
                read_answers(&mut stream, one)
            }
            Inside::Http1(bytes) => {
                let mut stream = self.tls(stream, sni, b"http/1.1");
                let _ = stream
                    .write_all(&self.fill_in(bytes))
                    .and_then(|()| stream.flush());
                read_answers(&mut stream, one)
            }
            Inside::Http2(fields) => http2::exchange(&mut self.tls(stream, sni, b"h2"), fields),
        }
    }

    fn tls(
        &self,
        stream: TcpStream,
        sni: &str,
        alpn: &[u8],
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from(sni.to_owned()).unwrap();
        StreamOwned::new(
            ClientConnection::new(Arc::new(config), name).unwrap(),
            stream,
        )
    }

    // The catalogue's names for what only a laboratory knows.
    fn fill_in(&self, bytes: &[u8]) -> Vec<u8> {
        let line = format!("Proxy-Authorization: Bearer {}\r\n", self.token);
        let filled = replace(bytes, b"{AUTH}", line.as_bytes());
        let filled = replace(&filled, b"run-token-1", self.token.as_bytes());
        replace(&filled, b"127.0.0.1:18081", self.address.as_bytes())
    }
}

// Reads until the peer ends or falls silent; to the end of the first answer if `one` is enough.
fn read_answers(stream: &mut impl Read, one: bool) -> Vec<u8> {
    let mut received = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while !(one && is_whole(&received)) {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
        }
    }
    received
}

fn is_whole(received: &[u8]) -> bool {
    let text = String::from_utf8_lossy(received).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => body.ends_with("0\r\n\r\n"),
    }
}

fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        received.push(byte[0]);
    }
    received
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}
