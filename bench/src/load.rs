//! The same load for every proxy: intercepted requests on kept connections, new connections, and a stream.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A way through one proxy to the origin.
#[derive(Clone)]
pub struct Path {
    /// Where the proxy listens.
    pub proxy: SocketAddr,
    /// What is asked of it: `host:port`.
    pub target: String,
    /// The line that opens its door, if it wants one.
    pub token: Option<String>,
    /// What programs behind it hold in place of the key.
    pub placeholder: String,
    /// The authority that it signs with.
    pub roots: Arc<RootCertStore>,
}

impl Path {
    fn connector(&self) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring knows the default versions")
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Each new connection is a whole handshake: that is what is measured.
        config.resumption = rustls::client::Resumption::disabled();
        TlsConnector::from(Arc::new(config))
    }

    async fn connect(&self, connector: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        let mut stream = TcpStream::connect(self.proxy).await?;
        stream.set_nodelay(true)?;
        let token = self.token.as_deref().unwrap_or_default();
        let head = format!(
            "CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n{token}\r\n",
            self.target
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await?);
        }
        if answer.get(9..12) != Some(b"200") {
            return Err(refused(&answer));
        }
        let host = self.target.split(':').next().unwrap_or_default().to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        connector.connect(name, stream).await
    }

    fn request(&self, path: &str) -> Vec<u8> {
        format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.target, self.placeholder
        )
        .into_bytes()
    }
}

/// How many requests per second of the clock were answered, and how many in all.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Requests that were answered with 200.
    pub requests: u64,
    /// How long it took.
    pub took: Duration,
}

/// Asks on `connections` kept connections for `time`.
///
/// # Errors
/// When a connection breaks or an answer is not 200.
pub async fn keep_alive(path: &Path, connections: usize, time: Duration) -> io::Result<Done> {
    let connector = path.connector();
    let mut streams = Vec::new();
    for _ in 0..connections {
        streams.push(path.connect(&connector).await?);
    }
    run(
        time,
        streams.into_iter().map(|mut stream| {
            let request = path.request("/small");
            move |clock: Clock| async move {
                let mut buffer = vec![0; 32 * 1024];
                while !clock.is_over() {
                    stream.write_all(&request).await?;
                    read_answer(&mut stream, &mut buffer).await?;
                    clock.count();
                }
                Ok(())
            }
        }),
    )
    .await
}

/// Opens a connection for each request, `at_once` at a time, for `time`.
///
/// # Errors
/// When a connection breaks or an answer is not 200.
pub async fn new_connections(path: &Path, at_once: usize, time: Duration) -> io::Result<Done> {
    run(
        time,
        (0..at_once).map(|_| {
            let (path, connector) = (path.clone(), path.connector());
            move |clock: Clock| async move {
                let mut buffer = vec![0; 32 * 1024];
                let request = path.request("/small");
                while !clock.is_over() {
                    let mut stream = path.connect(&connector).await?;
                    stream.write_all(&request).await?;
                    read_answer(&mut stream, &mut buffer).await?;
                    clock.count();
                }
                Ok(())
            }
        }),
    )
    .await
}

/// Reads one answer of so many mebibytes.
///
/// # Errors
/// When the connection breaks or less arrives.
pub async fn stream(path: &Path, mebibytes: usize) -> io::Result<Done> {
    let begun = Instant::now();
    let mut stream = path.connect(&path.connector()).await?;
    stream
        .write_all(&path.request(&format!("/stream/{mebibytes}")))
        .await?;
    let mut buffer = vec![0; 256 * 1024];
    let mut received = 0;
    while received < mebibytes << 20 {
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received += count,
        }
    }
    Ok(Done {
        requests: 1,
        took: begun.elapsed(),
    })
}

#[derive(Clone)]
struct Clock {
    over: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
}

impl Clock {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

async fn run<F, W>(time: Duration, workers: impl Iterator<Item = W>) -> io::Result<Done>
where
    W: FnOnce(Clock) -> F,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let clock = Clock {
        over: Arc::default(),
        requests: Arc::default(),
    };
    let begun = Instant::now();
    let tasks: Vec<_> = workers
        .map(|worker| tokio::spawn(worker(clock.clone())))
        .collect();
    tokio::time::sleep(time).await;
    clock.over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.map_err(io::Error::other)??;
    }
    Ok(Done {
        requests: clock.requests.load(Ordering::Relaxed),
        took: begun.elapsed(),
    })
}

/// Reads a whole answer with a length or in chunks, and insists on 200.
async fn read_answer(stream: &mut TlsStream<TcpStream>, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    loop {
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += count;
        let text = &buffer[..filled];
        let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        if text.get(9..12) != Some(b"200") {
            return Err(refused(&text[..end]));
        }
        let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let is_whole = match length.and_then(|text| text.trim().parse::<usize>().ok()) {
            Some(length) => filled >= end + 4 + length,
            None => text.ends_with(b"0\r\n\r\n"),
        };
        if is_whole {
            return Ok(());
        }
    }
}

fn refused(answer: &[u8]) -> io::Error {
    let head = String::from_utf8_lossy(answer);
    io::Error::other(format!(
        "answered with `{}`",
        head.lines().next().unwrap_or_default()
    ))
}
