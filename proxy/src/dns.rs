//! Answers the DNS questions of a run. Nothing is forwarded, so a name carries nothing out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use policies::Host;
use sdk::audit::{Door, Event, EventKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::core::Core;
use crate::principal::Principal;
use crate::stream::Stream;

/// Answers questions over UDP for as long as the socket works.
pub(crate) async fn serve_udp(core: Arc<Core>, principal: Arc<Principal>, socket: UdpSocket) {
    let mut buffer = vec![0; LONGEST];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, from)) => {
                if let Some(answer) = answer(&core, &principal, &buffer[..length]).await {
                    // A resolver asks again if an answer is lost.
                    let _ = socket.send_to(&answer, from).await;
                }
            }
            // An ICMP error of an earlier answer; the socket itself is fine.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => {
                tracing::warn!(%error, "DNS questions cannot be received");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers the questions of one connection (RFC 7766).
pub(crate) async fn serve_tcp(core: &Core, principal: &Principal, mut stream: Stream) {
    let mut buffer = Vec::new();
    loop {
        let Ok(Ok(length)) = timeout(core.limits.first_byte, stream.read_u16()).await else {
            return;
        };
        buffer.resize(usize::from(length), 0);
        let read = timeout(core.limits.first_byte, stream.read_exact(&mut buffer)).await;
        if !matches!(read, Ok(Ok(_))) {
            return;
        }
        let Some(answer) = answer(core, principal, &buffer).await else {
            return;
        };
        let Ok(length) = u16::try_from(answer.len()) else {
            return;
        };
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        // One who asks and asks and reads no answer is not waited for.
        let written = timeout(core.limits.first_byte, stream.write_all(&framed)).await;
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

/// The answer to one message; none to what is not even a question.
async fn answer(core: &Core, principal: &Principal, bytes: &[u8]) -> Option<Vec<u8>> {
    // Fewer bytes than a header have no number to answer to.
    let id = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
    if bytes.len() < 12 || bytes[2] & 0x80 != 0 {
        return None;
    }
    let Ok(question) = Message::from_vec(bytes) else {
        return Message::error_msg(id, OpCode::Query, ResponseCode::FormErr)
            .to_vec()
            .ok();
    };
    let mut answer = Message::new(id, MessageType::Response, question.metadata.op_code);
    answer.metadata.recursion_desired = question.metadata.recursion_desired;
    answer.metadata.recursion_available = true;
    answer.metadata.response_code = match question.queries.as_slice() {
        _ if question.metadata.op_code != OpCode::Query => ResponseCode::NotImp,
        [query] => {
            answer.add_query(query.clone());
            let (code, record) = resolve(core, principal, query).await;
            if let Some(record) = record {
                answer.add_answer(record);
            }
            code
        }
        _ => ResponseCode::FormErr,
    };
    answer.to_vec().ok()
}

async fn resolve(
    core: &Core,
    principal: &Principal,
    query: &Query,
) -> (ResponseCode, Option<Record>) {
    if query.query_class() != DNSClass::IN {
        return (ResponseCode::NotImp, None);
    }
    let is_v4 = match query.query_type() {
        RecordType::A => true,
        RecordType::AAAA => false,
        // No data: the name is there, but has nothing of the kind.
        _ => return (ResponseCode::NoError, None),
    };
    let text = query.name().to_ascii();
    let Ok(Host::Name(name)) = Host::parse(&text) else {
        return (ResponseCode::NXDomain, None);
    };
    let Some(synthetic) = principal.names.assign(&name) else {
        note_full(core, principal).await;
        return (ResponseCode::ServFail, None);
    };
    let data = if is_v4 {
        RData::A(A(synthetic.v4))
    } else {
        RData::AAAA(AAAA(synthetic.v6))
    };
    let record = Record::from_rdata(query.name().clone(), TTL, data);
    (ResponseCode::NoError, Some(record))
}

/// The run has asked for as many names as it may; each further one is written down, which slows it down.
async fn note_full(core: &Core, principal: &Principal) {
    let mut event = Event::new(EventKind::DnsRefused);
    event.run = Some(principal.run().id().clone());
    event.detail = Some(format!("no more names ({:?})", Door::Dns).to_lowercase());
    if core.broker.audit().append(&event).await.is_err() {
        tracing::error!("the audit log cannot be written");
    }
}

/// A name keeps its address, but clients need not know that.
const TTL: u32 = 1;
const LONGEST: usize = 4096;
