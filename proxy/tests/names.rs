//! Does the run's resolver answer every name by itself?

use std::net::{IpAddr, SocketAddr};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::support::World;

pub(crate) fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.to_vec().unwrap()
}

pub(crate) async fn ask(server: SocketAddr, bytes: &[u8]) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut buffer = [0; 2048];
    let length = socket.recv(&mut buffer).await.unwrap();
    Message::from_vec(&buffer[..length]).unwrap()
}

pub(crate) fn address(message: &Message) -> IpAddr {
    match &message.answers[0].data {
        RData::A(address) => address.0.into(),
        RData::AAAA(address) => address.0.into(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_name_has_an_address_of_its_own() {
    let world = World::usual().await;
    let first = ask(world.dns, &question("api.test.", RecordType::A)).await;
    let second = ask(world.dns, &question("evil.test.", RecordType::A)).await;
    let again = ask(world.dns, &question("API.test.", RecordType::A)).await;
    let v6 = ask(world.dns, &question("api.test.", RecordType::AAAA)).await;
    assert!(address(&first).to_string().starts_with("198.18."));
    assert_ne!(address(&first), address(&second));
    assert_eq!(address(&first), address(&again));
    assert!(address(&v6).is_ipv6());
    assert_eq!(first.answers[0].ttl, 1);
}

#[tokio::test]
async fn other_records_have_no_data() {
    let world = World::usual().await;
    for kind in [
        RecordType::TXT,
        RecordType::MX,
        RecordType::HTTPS,
        RecordType::SRV,
    ] {
        let answer = ask(world.dns, &question("api.test.", kind)).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert!(answer.answers.is_empty());
    }
}

#[tokio::test]
async fn junk_is_answered_as_junk() {
    let world = World::usual().await;
    let mut bytes = question("api.test.", RecordType::A);
    bytes[5] = 9;
    assert_eq!(
        ask(world.dns, &bytes).await.metadata.response_code,
        ResponseCode::FormErr
    );
    let answer = ask(world.dns, &question("api.test.", RecordType::A)).await;
    assert_eq!(answer.answers.len(), 1);
}

#[tokio::test]
async fn questions_are_answered_over_tcp_too() {
    let world = World::usual().await;
    let mut stream = TcpStream::connect(world.dns_over_tcp).await.unwrap();
    for _ in 0..2 {
        let bytes = question("api.test.", RecordType::A);
        stream
            .write_u16(u16::try_from(bytes.len()).unwrap())
            .await
            .unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), 1);
    }
}
