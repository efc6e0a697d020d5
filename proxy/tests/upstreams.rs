//! Does an upstream that breaks the rules of HTTP reach nobody?

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::client::{Answer, exchange};
use crate::support::{Plan, World};

const POLICY: &str =
    "version = 1\n[[allow]]\nhost = \"open.test\"\nscheme = \"http\"\nports = [80]\n";

/// What a run gets from an upstream that answers with these bytes, and again and again with the last of them.
async fn answered_with(once: &'static str, forever: &'static str) -> Answer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else {
                    break;
                };
                head.push(byte);
            }
            let mut is_open = stream.write_all(once.as_bytes()).await.is_ok();
            while is_open && !forever.is_empty() {
                is_open = stream.write_all(forever.as_bytes()).await.is_ok();
            }
        }
    });
    let world = World::new(Plan {
        policy: POLICY,
        secrets: "",
        hosts: &["open.test:80"],
        elsewhere: Some(address),
        ..Plan::default()
    })
    .await;
    let mut stream = world.connect(world.door).await;
    let request = "GET http://open.test/open HTTP/1.1\r\nHost: open.test\r\n\r\n";
    exchange(&mut stream, request).await
}

#[tokio::test]
async fn a_plain_answer_passes() {
    let answer = answered_with(
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "",
    )
    .await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
}

#[tokio::test]
async fn interim_answers_without_end_are_cut_off() {
    let answer = answered_with("", "HTTP/1.1 102 Processing\r\n\r\n").await;
    assert_eq!(
        (answer.status, answer.code()),
        (502, "upstream-unreachable")
    );
}

#[tokio::test]
async fn a_header_without_end_is_cut_off() {
    let answer = answered_with(
        "HTTP/1.1 200 OK\r\nX-Long: ",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    )
    .await;
    assert_eq!(
        (answer.status, answer.code()),
        (502, "upstream-unreachable")
    );
}

#[tokio::test]
async fn another_protocol_that_nobody_asked_for_is_refused() {
    let answer = answered_with(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "",
    )
    .await;
    assert_eq!(
        (answer.status, answer.code()),
        (502, "upstream-unreachable")
    );
}

#[tokio::test]
async fn a_field_with_a_control_character_is_refused() {
    let answer = answered_with(
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n",
        "",
    )
    .await;
    assert_eq!(
        (answer.status, answer.code()),
        (502, "upstream-unreachable")
    );
}

#[tokio::test]
async fn of_two_lengths_the_one_that_was_used_is_told() {
    let answer = answered_with("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "").await;
    assert!(matches!(answer.status, 200 | 502));
    assert_eq!(
        answer
            .field("content-length")
            .filter(|_| answer.status == 200),
        None
    );
}
