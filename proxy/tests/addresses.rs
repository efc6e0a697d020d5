//! Is nothing inside dialled, whatever a name leads to?

use std::net::{IpAddr, SocketAddr};

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use crate::support::{Plan, World};

#[tokio::test]
async fn an_address_inside_is_refused_even_where_a_rule_names_it() {
    let policy = "version = 1\n[[allow]]\nhost = \"127.0.0.1\"\nports = [{CAPTURED}]\nscheme = \"http\"\n[[allow]]\nhost = \"169.254.169.254\"\nscheme = \"http\"\nports = [80]\n";
    let world = World::new(Plan {
        policy,
        secrets: "",
        ..Plan::default()
    })
    .await;
    for url in [
        format!("http://127.0.0.1:{}/", world.captured),
        format!("http://0x7f.1:{}/", world.captured),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ] {
        let mut stream = world.connect(world.door).await;
        let request = format!("GET {url} HTTP/1.1\r\n\r\n");
        let answer = crate::support::client::exchange(&mut stream, &request).await;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "address-not-allowed"),
            "{url}"
        );
    }
}

#[tokio::test]
async fn our_own_listener_is_never_dialled() {
    let world = World::new(Plan {
        policy: "version = 1\n[[allow]]\nhost = \"127.0.0.1\"\nports = [1, {SHARED}]\nscheme = \"http\"\n",
        secrets: "",
        hosts: &["127.0.0.1:1"],
        ..Plan::default()
    })
    .await;
    let mut stream = world.connect(world.door).await;
    let url = format!("http://127.0.0.1:{}/", world.shared.port());
    let request = format!("GET {url} HTTP/1.1\r\n\r\n");
    let answer = crate::support::client::exchange(&mut stream, &request).await;
    assert_eq!((answer.status, answer.code()), (403, "address-not-allowed"));
}

/// A DNS server that answers every question with these records, and then some more.
async fn resolver(records: Vec<RData>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let query = question.queries[0].clone();
            let mut answer = Message::new(
                question.id,
                MessageType::Response,
                question.metadata.op_code,
            );
            for record in &records {
                let is_wanted =
                    record.record_type() == query.query_type() || record.record_type().is_cname();
                if is_wanted {
                    let name = match record {
                        RData::A(_) | RData::AAAA(_) if records[0].record_type().is_cname() => {
                            Name::from_ascii("other.test.").unwrap()
                        }
                        _ => query.name().clone(),
                    };
                    // A TTL of 0: whoever asks again gets another answer.
                    answer.add_answer(Record::from_rdata(name, 0, record.clone()));
                }
            }
            answer.add_query(query);
            let _ = socket.send_to(&answer.to_vec().unwrap(), from).await;
        }
    });
    address
}

fn inside(text: &str) -> RData {
    match text.parse().unwrap() {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_however_it_does() {
    let alias = RData::CNAME(CNAME(Name::from_ascii("other.test.").unwrap()));
    for records in [
        vec![inside("127.0.0.1")],
        vec![inside("0.0.0.0")],
        vec![inside("::1")],
        vec![inside("::ffff:127.0.0.1")],
        vec![inside("64:ff9b::7f00:1")],
        vec![
            inside("fd00::1"),
            inside("10.0.0.1"),
            inside("169.254.169.254"),
        ],
        vec![alias, inside("127.0.0.1")],
        (0..64)
            .map(|number| inside(&format!("10.0.0.{number}")))
            .collect(),
    ] {
        let upstream = format!("resolver = \"{}\"", resolver(records.clone()).await);
        let world = World::new(Plan {
            policy: "version = 1\n[[allow]]\nhost = \"named.test\"\nports = [{CAPTURED}]\nscheme = \"http\"\n",
            secrets: "",
            hosts: &[],
            upstream: &upstream,
            ..Plan::default()
        })
        .await;
        let mut stream = world.connect(world.door).await;
        let request = format!("GET http://named.test:{}/ HTTP/1.1\r\n\r\n", world.captured);
        let answer = crate::support::client::exchange(&mut stream, &request).await;
        assert_eq!(answer.code(), "address-not-allowed", "{records:?}");
    }
}

#[tokio::test]
async fn a_name_that_leads_inside_is_followed_only_where_the_owner_wrote_so() {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = service.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = service.accept().await {
            let mut request = [0; 1024];
            let _ = connection.read(&mut request).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ninside";
            let _ = connection.write_all(answer).await;
        }
    });
    let policy = format!(
        "version = 1\n[[allow]]\nhost = \"named.test\"\nports = [{port}]\nscheme = \"http\"\n"
    );
    // The owner's settings name the address ranges of these hosts; where the other port leads does not matter.
    for (written, status) in [(&[][..], 403), (&["named.test:1"], 200)] {
        let resolver = resolver(vec![inside("127.0.0.1")]).await;
        let upstream = format!("resolver = \"{resolver}\"");
        let world = World::new(Plan {
            policy: &policy,
            secrets: "",
            hosts: written,
            upstream: &upstream,
            ..Plan::default()
        })
        .await;
        let mut stream = world.connect(world.door).await;
        let request = format!("GET http://named.test:{port}/ HTTP/1.1\r\n\r\n");
        let answer = crate::support::client::exchange(&mut stream, &request).await;
        assert_eq!(answer.status, status, "{written:?}");
    }
}
