//! An upstream that keeps every byte it is sent and reads it as strictly as RFC 9112 allows.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The upstream, in clear and with TLS.
pub(super) struct Recorder {
    pub(super) plain: SocketAddr,
    pub(super) tls: SocketAddr,
    memory: Arc<Memory>,
}

#[derive(Default)]
struct Memory {
    connections: AtomicUsize,
    forwarded: Mutex<Vec<Forwarded>>,
}

/// One request as it was forwarded. It has no `Debug`: it holds the secret.
#[derive(Default)]
pub(super) struct Forwarded {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) fields: Vec<(String, String)>,
    /// What a strict reader finds wrong with it.
    pub(super) faults: Vec<String>,
    /// Whether the connection ended before it did. Then no server acts on it: RFC 9112 section 8.
    pub(super) is_cut_off: bool,
}

impl Forwarded {
    /// The values of a field.
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(field, _)| field == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

impl Recorder {
    pub(super) fn start(config: Arc<ServerConfig>) -> Self {
        let memory = Arc::new(Memory::default());
        let plain = listen(Arc::clone(&memory), None);
        let tls = listen(Arc::clone(&memory), Some(config));
        Self { plain, tls, memory }
    }

    /// What was forwarded since the last call.
    pub(super) fn take(&self) -> Vec<Forwarded> {
        std::mem::take(&mut *self.memory.forwarded.lock().unwrap())
    }

    pub(super) fn connections(&self) -> usize {
        self.memory.connections.load(Ordering::SeqCst)
    }
}

fn listen(memory: Arc<Memory>, tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            memory.connections.fetch_add(1, Ordering::SeqCst);
            let (memory, tls) = (Arc::clone(&memory), tls.clone());
            std::thread::spawn(move || serve(stream, &memory, tls));
        }
    });
    address
}

fn serve(stream: TcpStream, memory: &Memory, tls: Option<Arc<ServerConfig>>) {
    match tls {
        None => converse(stream, memory),
        Some(config) => {
            let connection = ServerConnection::new(config).unwrap();
            converse(StreamOwned::new(connection, stream), memory);
        }
    }
}

fn converse(mut stream: impl Read + Write, memory: &Memory) {
    let mut unread = Vec::new();
    while let Some(forwarded) = read_request(&mut stream, &mut unread) {
        let answer = answer(&forwarded);
        let is_broken = forwarded.is_cut_off || !forwarded.faults.is_empty();
        memory.forwarded.lock().unwrap().push(forwarded);
        if stream
            .write_all(&answer)
            .and_then(|()| stream.flush())
            .is_err()
            || is_broken
        {
            return;
        }
    }
}

fn answer(forwarded: &Forwarded) -> Vec<u8> {
    let body = match forwarded.target.as_str() {
        target if target.starts_with("/echo") => forwarded
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect(),
        _ => "ok\n".to_owned(),
    };
    let head = match forwarded.target.as_str() {
        "/redirect" => "302 Found\r\nLocation: http://evil.test:18100/",
        "/upgrade" => "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket",
        _ => "200 OK\r\nContent-Type: text/plain",
    };
    let body = if forwarded.method == "HEAD" {
        ""
    } else {
        &body
    };
    format!(
        "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Reads one request with its body; `None` once the connection ends between two.
fn read_request(stream: &mut impl Read, unread: &mut Vec<u8>) -> Option<Forwarded> {
    let end = loop {
        if let Some(end) = find(unread, b"\r\n\r\n") {
            break end;
        }
        if !more(stream, unread) {
            if unread.is_empty() {
                return None;
            }
            let mut cut = Forwarded::default();
            let text = String::from_utf8_lossy(&unread[..unread.len().min(80)]).into_owned();
            unread.clear();
            cut.faults.push(format!("a head without an end: {text:?}"));
            return Some(cut);
        }
    };
    let head: Vec<u8> = unread.drain(..end + 4).collect();
    let mut forwarded = parse_head(&head[..end]);
    let chunked = forwarded.values("transfer-encoding") == ["chunked"];
    let length = forwarded
        .values("content-length")
        .first()
        .and_then(|text| text.parse().ok());
    match (chunked, length) {
        (true, _) => read_chunks(stream, unread, &mut forwarded),
        (false, Some(length)) => read_exactly(stream, unread, length, &mut forwarded),
        (false, None) => {}
    }
    Some(forwarded)
}

fn parse_head(head: &[u8]) -> Forwarded {
    let mut forwarded = Forwarded::default();
    let mut faults = Vec::new();
    if head.contains(&0) {
        faults.push("a NUL in the head".to_owned());
    }
    let text: String = head.iter().map(|byte| char::from(*byte)).collect();
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        [method, target, "HTTP/1.1"] => {
            forwarded.method = (*method).to_owned();
            forwarded.target = (*target).to_owned();
            if !target.starts_with('/') {
                faults.push(format!("the target {target:?} is not in origin form"));
            }
        }
        _ => faults.push(format!("the request line {line:?}")),
    }
    for line in lines {
        if line.contains(['\r', '\n']) {
            faults.push("a bare CR or LF in a field".to_owned());
        }
        match line.split_once(':') {
            Some((name, value)) if !name.is_empty() && name.bytes().all(is_token) => {
                let value = value.trim_matches([' ', '\t']).to_owned();
                forwarded.fields.push((name.to_ascii_lowercase(), value));
            }
            _ => faults.push(format!("the field line {line:?}")),
        }
    }
    framing_faults(&forwarded, &mut faults);
    forwarded.faults = faults;
    forwarded
}

fn framing_faults(forwarded: &Forwarded, faults: &mut Vec<String>) {
    let lengths = forwarded.values("content-length");
    let encodings = forwarded.values("transfer-encoding");
    if forwarded.values("host").len() != 1 {
        faults.push("not exactly one Host".to_owned());
    }
    if lengths.len() + encodings.len() > 1 {
        faults.push("two framings".to_owned());
    }
    if lengths
        .iter()
        .any(|text| text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()))
    {
        faults.push(format!("the content length {lengths:?}"));
    }
    if encodings.iter().any(|text| *text != "chunked") {
        faults.push(format!("the transfer encoding {encodings:?}"));
    }
}

fn read_chunks(stream: &mut impl Read, unread: &mut Vec<u8>, request: &mut Forwarded) {
    loop {
        let Some(line) = read_line(stream, unread) else {
            request.is_cut_off = true;
            return;
        };
        let size = match usize::from_str_radix(&line, 16) {
            Ok(size) if line.bytes().all(|byte| byte.is_ascii_hexdigit()) => size,
            _ => return request.faults.push(format!("the chunk size {line:?}")),
        };
        if size == 0 {
            break;
        }
        read_exactly(stream, unread, size + 2, request);
        if request.is_cut_off {
            return;
        }
    }
    // The trailers, to the empty line.
    while let Some(line) = read_line(stream, unread) {
        if line.is_empty() {
            return;
        }
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        if NO_TRAILERS.contains(&name.as_str()) {
            request.faults.push(format!("the trailer {name}"));
        }
    }
    request.is_cut_off = true;
}

fn read_line(stream: &mut impl Read, unread: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = find(unread, b"\r\n") {
            let line: Vec<u8> = unread.drain(..end + 2).collect();
            return Some(line[..end].iter().map(|byte| char::from(*byte)).collect());
        }
        if !more(stream, unread) {
            return None;
        }
    }
}

fn read_exactly(
    stream: &mut impl Read,
    unread: &mut Vec<u8>,
    length: usize,
    request: &mut Forwarded,
) {
    while unread.len() < length {
        if !more(stream, unread) {
            request.is_cut_off = true;
            return;
        }
    }
    unread.drain(..length);
}

fn more(stream: &mut impl Read, unread: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) | Err(_) => false,
        Ok(count) => {
            unread.extend_from_slice(&buffer[..count]);
            true
        }
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

// Fields that would change what was decided, had they come late (RFC 9110 section 6.5.1).
const NO_TRAILERS: &[&str] = &[
    "authorization",
    "content-length",
    "host",
    "transfer-encoding",
];
