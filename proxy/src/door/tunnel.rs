//! A tunnel that passes unread, as a rule says, to the host that its TLS names.

use std::sync::Arc;

use policies::Host;
use sdk::Code;
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::authz::Permit;
use crate::core::Core;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::respond::{self, ESTABLISHED, UNRECOGNIZED_NAME};
use crate::stream::Stream;
use crate::tls::read_hello;
use crate::upstream::dial_tcp;
use crate::watch::Activity;

/// Serves a CONNECT: it is answered once the upstream is there.
pub(crate) async fn serve(core: Arc<Core>, mut stream: Stream, permit: Permit, mut record: Record) {
    match dial(&core, &permit, &mut record).await {
        Ok(upstream) => {
            if stream.write_all(ESTABLISHED).await.is_ok() {
                pass(core, stream, upstream, permit, record).await;
            }
        }
        Err(refusal) => {
            let told = match record.refuse(&refusal).await {
                Ok(()) => refusal,
                Err(broker::AuditUnavailable) => Refusal::new(Code::AuditUnavailable),
            };
            let answer = respond::refuse_connect(&told, &record.asked(false));
            let _ = stream.write_all(&answer).await;
        }
    }
}

/// Serves a connection that was captured.
pub(crate) async fn serve_captured(
    core: Arc<Core>,
    stream: Stream,
    permit: Permit,
    mut record: Record,
) {
    match dial(&core, &permit, &mut record).await {
        Ok(upstream) => pass(core, stream, upstream, permit, record).await,
        Err(refusal) => super::inner::note(record, refusal).await,
    }
}

async fn dial(core: &Core, permit: &Permit, record: &mut Record) -> Result<TcpStream, Refusal> {
    record.by_rule(permit.rule());
    // Nothing is resolved or dialled before this line is written.
    record
        .start()
        .await
        .map_err(|_| Refusal::new(Code::AuditUnavailable))?;
    let deadline = Instant::now() + core.limits.connect;
    let (address, upstream) = dial_tcp(core, permit, deadline).await?;
    record.reached(address.socket().ip(), None);
    Ok(upstream)
}

async fn pass(
    core: Arc<Core>,
    mut stream: Stream,
    mut upstream: TcpStream,
    permit: Permit,
    mut record: Record,
) {
    // Nothing passes before the name is known: the tunnel is for that host only.
    let Ok(Ok(hello)) = timeout(core.limits.first_byte, read_hello(&mut stream)).await else {
        return super::inner::note(
            record,
            Refusal::ambiguous("no TLS comes through the tunnel"),
        )
        .await;
    };
    if hello.hides_a_name() {
        let hint = "TLS may name another host in secret here (Encrypted Client Hello)";
        super::inner::note(record, Refusal::with_hint(Code::AuthorityMismatch, hint)).await;
        let _ = stream.write_all(&UNRECOGNIZED_NAME).await;
        return;
    }
    let host = permit.destination().host();
    let is_meant = match (hello.server_name(), host) {
        (Some(name), _) => Host::parse(&name).ok().as_ref() == Some(host),
        // Clients send no name with an address.
        (None, Host::V4(_) | Host::V6(_)) => true,
        (None, Host::Name(_)) => false,
    };
    if !is_meant {
        super::inner::note(record, Refusal::new(Code::AuthorityMismatch)).await;
        let _ = stream.write_all(&UNRECOGNIZED_NAME).await;
        return;
    }
    if upstream.write_all(&hello.bytes).await.is_err() {
        return record.broke_off();
    }
    let uploads = record.uploads();
    let first = hello.bytes.len() as u64;
    let activity = Activity::new();
    stream.watched_by(activity.clone());
    let _carried = activity.carry();
    let copied = tokio::select! {
        copied = copy_bidirectional_with_sizes(&mut stream, &mut upstream, BUFFER, BUFFER) => copied,
        () = activity.silence(&core.limits, true) => return record.broke_off(),
    };
    match copied {
        Ok((up, down)) => {
            uploads.store(first + up, std::sync::atomic::Ordering::Relaxed);
            record.sent(usize::try_from(down).unwrap_or(usize::MAX));
            record.complete();
        }
        Err(_) => record.broke_off(),
    }
}

const BUFFER: usize = 64 * 1024;
