//! Is a request sent a second time only where that is harmless?

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::support::client::{Answer, exchange};
use crate::support::{Plan, World};

const POLICY: &str =
    "version = 1\n[[allow]]\nhost = \"open.test\"\nscheme = \"http\"\nports = [80]\n";

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// What becomes of a second request, if the upstream takes it on the first one's connection and hangs up on it. Also
/// the request lines that the upstream saw.
async fn second(request: &str, idle: Duration) -> (Answer, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, mut seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut is_first = true;
        while let Ok((mut stream, _)) = listener.accept().await {
            let answers = if is_first { 1 } else { usize::MAX };
            is_first = false;
            for _ in 0..answers {
                let Some(head) = read_head(&mut stream).await else {
                    break;
                };
                let _ = told.send(head.lines().next().unwrap().to_owned());
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.write_all(answer).await.unwrap();
            }
            if let Some(head) = read_head(&mut stream).await {
                let _ = told.send(head.lines().next().unwrap().to_owned());
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
    let warm = "GET http://open.test/warm HTTP/1.1\r\nHost: open.test\r\n\r\n";
    assert_eq!(exchange(&mut stream, warm).await.status, 200);
    tokio::time::pause();
    tokio::time::advance(idle).await;
    tokio::time::resume();
    let answer = exchange(&mut stream, request).await;
    drop(stream);
    let mut lines = Vec::new();
    while let Ok(line) = seen.try_recv() {
        lines.push(line);
    }
    (answer, lines)
}

const GET: &str = "GET http://open.test/b HTTP/1.1\r\nHost: open.test\r\n\r\n";
const LONG: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_request_on_a_connection_that_died_meanwhile_is_sent_again() {
    let (answer, seen) = second(GET, LONG).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    assert_eq!(
        seen,
        ["GET /warm HTTP/1.1", "GET /b HTTP/1.1", "GET /b HTTP/1.1"]
    );
}

#[tokio::test]
async fn a_request_that_may_have_done_something_is_not_sent_again() {
    for request in [
        "POST http://open.test/b HTTP/1.1\r\nHost: open.test\r\nContent-Length: 0\r\n\r\n",
        "PATCH http://open.test/b HTTP/1.1\r\nHost: open.test\r\nContent-Length: 2\r\n\r\nhi",
        "PUT http://open.test/b HTTP/1.1\r\nHost: open.test\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        let (answer, seen) = second(request, LONG).await;
        assert_eq!(answer.code(), "upstream-unreachable", "{request}");
        assert_eq!(seen.len(), 2, "{request}: {seen:?}");
    }
}
