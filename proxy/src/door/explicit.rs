//! A door that speaks to a proxy: CONNECT, or requests with a whole URL.

use std::sync::{Arc, Mutex};

use policies::{Authority, Scheme};
use sdk::Code;
use sdk::audit::Door;
use tokio::io::AsyncWriteExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::inner;
use super::tunnel;
use crate::authn;
use crate::authz::{self, Connection};
use crate::core::Core;
use crate::destination::Destination;
use crate::inbound::{Inbound, Leads, Owner};
use crate::principal::Principal;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::respond::{self, ESTABLISHED};
use crate::serve;
use crate::stream::Stream;
use crate::watch::Activity;

/// Whose a door is.
pub(crate) enum Entrance {
    /// Everybody's: a token is needed. Until it comes, the connection is one of a stranger.
    Shared(OwnedSemaphorePermit),
    /// One run's.
    OfRun(Arc<Principal>),
}

/// Serves one connection.
pub(crate) async fn serve(core: Arc<Core>, mut stream: Stream, entrance: Entrance) {
    let begin = Instant::now();
    loop {
        // A stranger who asks again and again would keep others out.
        if begin.elapsed() > core.limits.idle {
            return;
        }
        match timeout(core.limits.first_byte, first(&mut stream)).await {
            Ok(First::Connect) => {}
            Ok(First::Request) => return serve_requests(core, stream, entrance).await,
            // TLS, SOCKS, HTTP/2 without TLS, PROXY protocol: none of it is spoken here.
            Ok(First::Other) => {
                return note(&core, &entrance, Refusal::new(Code::AmbiguousRequest)).await;
            }
            Ok(First::Nothing) | Err(_) => return,
        }
        let read = timeout(
            core.limits.header,
            read_head(&mut stream, core.limits.header_bytes),
        );
        let head = match read.await {
            Ok(Ok(Some(head))) => head,
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(refusal)) => {
                let record = record(&core, &entrance);
                let refusing = refuse(&mut stream, record, refusal);
                let _ = timeout(core.limits.header, refusing).await;
                return;
            }
        };
        let mut record = record(&core, &entrance);
        match connect(&core, &entrance, &head, &mut record) {
            Ok((principal, destination)) => {
                return open(core, stream, entrance, principal, destination, record).await;
            }
            Err(refusal) => {
                // After a 407 the client asks again on the same connection.
                let is_last = refusal.is_final() || head.has_body;
                // One who sends requests and reads no answer is not waited for.
                let refusing = refuse(&mut stream, record, refusal);
                let told = timeout(core.limits.header, refusing).await;
                if is_last || !matches!(told, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}

/// What a connection begins with.
enum First {
    Connect,
    Request,
    Other,
    Nothing,
}

async fn first(stream: &mut Stream) -> First {
    loop {
        let ahead = stream.ahead();
        if ahead.starts_with(PROXY_PROTOCOL) {
            return First::Other;
        }
        // Some clients send an empty line after a request (RFC 9112, section 2.2).
        while ahead.starts_with(b"\r\n") && !PROXY_PROTOCOL.starts_with(ahead) {
            let _ = ahead.split_to(2);
        }
        if let Some(first) = ahead.first().copied()
            && !PROXY_PROTOCOL.starts_with(ahead)
        {
            if ahead.starts_with(b"PRI ") || ahead.starts_with(b"PROXY ") {
                return First::Other;
            }
            if ahead.starts_with(CONNECT) {
                return First::Connect;
            }
            if !CONNECT.starts_with(ahead)
                && !b"PRI ".starts_with(ahead)
                && !b"PROXY ".starts_with(ahead)
            {
                return if first.is_ascii_alphabetic() || is_token_byte(first) {
                    First::Request
                } else {
                    First::Other
                };
            }
        }
        if !matches!(stream.read_ahead().await, Ok(true)) {
            return First::Nothing;
        }
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The head of a CONNECT.
struct Head {
    target: String,
    hosts: Vec<Vec<u8>>,
    authorizations: Vec<Vec<u8>>,
    has_body: bool,
}

/// Reads the head of a CONNECT; none if the client goes away before its end.
async fn read_head(stream: &mut Stream, most: usize) -> Result<Option<Head>, Refusal> {
    let mut seen = 0;
    loop {
        // Only a line's end can end a header; to parse at every byte would cost the square of its length.
        let ahead = &*stream.ahead();
        let is_new_line = ahead[seen.min(ahead.len())..].contains(&b'\n');
        seen = ahead.len();
        if is_new_line && let Some((head, length)) = parse_head(ahead)? {
            let _ = stream.ahead().split_to(length);
            return Ok(Some(head));
        }
        if stream.ahead().len() > most {
            return Err(Refusal::ambiguous("the header is too long"));
        }
        if !matches!(stream.read_ahead().await, Ok(true)) {
            return Ok(None);
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request
        .parse(bytes)
        .map_err(|_| Refusal::ambiguous("the header cannot be read"))?;
    let httparse::Status::Complete(length) = parsed else {
        return Ok(None);
    };
    if request.method != Some("CONNECT") {
        return Err(Refusal::ambiguous("the method cannot be read"));
    }
    let all = |name: &str| {
        request
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value.to_vec())
            .collect::<Vec<_>>()
    };
    let lengths = all("content-length");
    let head = Head {
        target: request.path.unwrap_or_default().to_owned(),
        hosts: all("host"),
        authorizations: all("proxy-authorization"),
        has_body: lengths.iter().any(|length| length != b"0")
            || !all("transfer-encoding").is_empty(),
    };
    Ok(Some((head, length)))
}

/// Who asks for a tunnel, and where to.
fn connect(
    core: &Arc<Core>,
    entrance: &Entrance,
    head: &Head,
    record: &mut Record,
) -> Result<(Arc<Principal>, Arc<Destination>), Refusal> {
    let tokens = head.authorizations.iter().map(Vec::as_slice);
    let principal = match entrance {
        Entrance::Shared(_) => authn::identify(core, tokens)?,
        Entrance::OfRun(principal) => {
            authn::confirm(core, principal, tokens)?;
            Arc::clone(principal)
        }
    };
    record.of(&principal, &principal.policy());
    if head.has_body {
        return Err(Refusal::ambiguous("CONNECT has no body"));
    }
    let not_a_host = |_| Refusal::ambiguous("the host cannot be read in one way only");
    let authority = Authority::parse(&head.target, None).map_err(not_a_host)?;
    if let [host, rest @ ..] = head.hosts.as_slice() {
        let text = std::str::from_utf8(host)
            .map_err(|_| Refusal::ambiguous("the host cannot be read in one way only"))?;
        let named = Authority::parse(text, Some(authority.port)).map_err(not_a_host)?;
        if !rest.is_empty() {
            return Err(Refusal::ambiguous("more than one `Host`"));
        }
        // Some clients leave the port out here.
        if named.host != authority.host || named.port != authority.port {
            return Err(Refusal::new(Code::AuthorityMismatch));
        }
    }
    let destination = Arc::new(Destination::new(Scheme::Https, authority)?);
    record.to(&destination);
    if !principal.run().is_active() {
        return Err(Refusal::new(Code::RunEnded));
    }
    Ok((principal, destination))
}

/// Opens a tunnel, for as long as the run lasts.
async fn open(
    core: Arc<Core>,
    stream: Stream,
    entrance: Entrance,
    principal: Arc<Principal>,
    destination: Arc<Destination>,
    record: Record,
) {
    match entrance {
        // It was counted when it came in, and ends with the run.
        Entrance::OfRun(_) => opened(core, stream, principal, destination, record).await,
        Entrance::Shared(stranger) => {
            drop(stranger);
            let owner = Arc::clone(&principal);
            owner.spawn(async move {
                // A run with as many connections as it may have waits for one to end.
                let Ok(place) = Arc::clone(&principal.bounds.connections)
                    .acquire_owned()
                    .await
                else {
                    return;
                };
                opened(core, stream, principal, destination, record).await;
                drop(place);
            });
        }
    }
}

async fn opened(
    core: Arc<Core>,
    mut stream: Stream,
    principal: Arc<Principal>,
    destination: Arc<Destination>,
    record: Record,
) {
    match authz::authorize_connection(&principal, &destination) {
        Connection::Tunnel(permit) => tunnel::serve(core, stream, permit, record).await,
        Connection::Refused(refusal) if !inner::is_inspected_port(destination.port()) => {
            let _ = refuse(&mut stream, record, refusal).await;
        }
        // The reason for a refusal reaches the code only inside TLS; nothing is resolved or dialled for it.
        Connection::Inspected | Connection::Refused(_) => {
            if stream.write_all(ESTABLISHED).await.is_ok() {
                inner::serve(core, stream, principal, destination, record, Door::Proxy).await;
            }
        }
    }
}

async fn serve_requests(core: Arc<Core>, mut stream: Stream, entrance: Entrance) {
    let activity = Activity::new();
    activity.received();
    stream.watched_by(activity.clone());
    let (owner, stranger) = match entrance {
        Entrance::Shared(stranger) => (Owner::Token(Mutex::new(None)), Some(stranger)),
        Entrance::OfRun(principal) => (Owner::Door(principal), None),
    };
    let inbound = Inbound {
        core,
        door: Door::Proxy,
        activity,
        owner,
        leads: Leads::Anywhere(Mutex::new(None)),
        ended: Arc::default(),
        stranger: Mutex::new(stranger),
    };
    serve::http1(Arc::new(inbound), stream).await;
}

fn record(core: &Core, entrance: &Entrance) -> Record {
    let mut record = Record::new(&core.broker, Door::Proxy, "CONNECT");
    if let Entrance::OfRun(principal) = entrance {
        record.of_door(principal);
    }
    record
}

async fn note(core: &Core, entrance: &Entrance, refusal: Refusal) {
    let mut record = record(core, entrance);
    if record.refuse(&refusal).await.is_err() {
        tracing::error!("the audit log cannot be written");
    }
}

async fn refuse(stream: &mut Stream, mut record: Record, refusal: Refusal) -> std::io::Result<()> {
    let told = match record.refuse(&refusal).await {
        Ok(()) => refusal,
        Err(broker::AuditUnavailable) => Refusal::new(Code::AuditUnavailable),
    };
    let answer = respond::refuse_connect(&told, &record.asked(false));
    stream.write_all(&answer).await
}

const CONNECT: &[u8] = b"CONNECT ";
const PROXY_PROTOCOL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
