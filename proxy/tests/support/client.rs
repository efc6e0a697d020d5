//! Clients of a proxy: one that sends bytes as they are, and one that speaks HTTP inside a tunnel.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::World;

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> &str {
        self.field("valetkey-denial").unwrap_or("")
    }
}

/// Sends bytes and reads the answer to them; the connection can be used again.
pub(crate) async fn exchange<S>(stream: &mut S, bytes: &str) -> Answer
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(bytes.as_bytes()).await.unwrap();
    read_answer(stream).await.expect("an answer")
}

/// Reads one answer; none if the connection ends before.
pub(crate) async fn read_answer<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Answer> {
    let head = read_head(stream).await?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut answer = Answer {
        status,
        head,
        body: String::new(),
    };
    if let Some(length) = answer.field("content-length") {
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.ok()?;
        answer.body = String::from_utf8(body).unwrap();
    }
    Some(answer)
}

pub(crate) async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

impl World {
    /// `Proxy-Authorization`, as a line.
    pub(crate) fn authorization(&self) -> String {
        let token = self.new.token.danger_expose();
        format!("Proxy-Authorization: Bearer {token}\r\n")
    }

    pub(crate) async fn connect(&self, door: SocketAddr) -> TcpStream {
        TcpStream::connect(door).await.unwrap()
    }

    /// A tunnel through the run's own door, before TLS.
    pub(crate) async fn tunnel(&self, authority: &str) -> TcpStream {
        let mut stream = self.connect(self.door).await;
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let answer = exchange(&mut stream, &request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        stream
    }

    /// TLS inside a tunnel through the run's own door.
    pub(crate) async fn tls(&self, authority: &str) -> TlsStream<TcpStream> {
        let stream = self.tunnel(authority).await;
        let name = authority.rsplit_once(':').unwrap().0;
        self.handshake(stream, name, b"http/1.1").await.unwrap()
    }

    pub(crate) async fn handshake<S>(
        &self,
        stream: S,
        name: &str,
        alpn: &[u8],
    ) -> std::io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut roots = RootCertStore::empty();
        roots
            .add(self.new.run.authority().ca_der().clone())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await
    }

    /// One request inside a tunnel, over HTTP/1.1: a request line without its version, and more lines.
    pub(crate) async fn ask(&self, authority: &str, line: &str, fields: &str) -> Answer {
        let mut stream = self.tls(authority).await;
        let host = authority.strip_suffix(":443").unwrap_or(authority);
        let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        exchange(&mut stream, &request).await
    }

    /// One request inside a tunnel, over HTTP/2.
    pub(crate) async fn ask_http2(
        &self,
        authority: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, hyper::Error> {
        let stream = self.tunnel(authority).await;
        let name = authority.rsplit_once(':').unwrap().0;
        let stream = self.handshake(stream, name, b"h2").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await?;
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await?.into_parts();
        Ok(Response::from_parts(
            parts,
            body.collect().await?.to_bytes(),
        ))
    }
}
