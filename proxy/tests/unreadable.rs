//! Is a request that nobody can read refused in our words, and recorded once?

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use sdk::audit::EventKind;
use tokio::io::AsyncWriteExt;

use crate::support::World;
use crate::support::client::{exchange, read_answer};
use crate::support::frames::{Frames, field};

#[tokio::test]
async fn a_request_that_is_no_http_is_told_so_and_recorded() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    let answer = exchange(&mut stream, "GET / HTTP/9.9\r\n\r\n").await;
    assert_eq!(
        (answer.status, answer.code()),
        (400, "ambiguous-request"),
        "{answer:?}"
    );
    let denial: sdk::Denial = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(denial.host.as_deref(), Some("api.test"));
    let event = world.final_event().await;
    assert_eq!(event.code, Some(sdk::Code::AmbiguousRequest));
    assert_eq!(event.request.unwrap().host.as_deref(), Some("api.test"));
}

#[tokio::test]
async fn what_cannot_be_read_after_a_request_is_refused_after_its_answer() {
    let world = World::usual().await;
    let mut stream = world.tls("api.test:443").await;
    let both = "GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\nGET / HTTP/9.9\r\n\r\n";
    let first = exchange(&mut stream, both).await;
    assert_eq!((first.status, first.body.as_str()), (200, "welcome"));
    let second = read_answer(&mut stream).await.unwrap();
    assert_eq!((second.status, second.code()), (400, "ambiguous-request"));
    assert!(read_answer(&mut stream).await.is_none());
    let finals = world.finals().await;
    let kinds: Vec<_> = finals.iter().map(|event| event.event).collect();
    assert_eq!(
        kinds,
        [EventKind::RequestFinished, EventKind::RequestDenied]
    );
}

#[tokio::test]
async fn at_an_explicit_door_it_is_told_so_too() {
    let world = World::usual().await;
    let mut stream = world.connect(world.door).await;
    let answer = exchange(&mut stream, "GET http://api.test/ HTTP/9.9\r\n\r\n").await;
    assert_eq!((answer.status, answer.code()), (400, "ambiguous-request"));
    let event = world.final_event().await;
    assert_eq!(event.run.as_ref(), Some(world.new.run.id()));
}

#[tokio::test]
async fn a_header_that_is_too_long_is_told_so_and_recorded() {
    let world = World::usual().await;
    let long = format!("X-Long: {}\r\n", "x".repeat(70_000));
    let many: String = (0..200)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    for fields in [long, many] {
        let answer = world.ask("api.test:443", "GET /v1", &fields).await;
        assert_eq!((answer.status, answer.code()), (431, "ambiguous-request"));
    }
    let finals = world.finals().await;
    let statuses: Vec<_> = finals.iter().map(|event| event.status).collect();
    assert_eq!(statuses, [Some(431), Some(431)]);
}

#[tokio::test]
async fn a_header_of_http2_that_is_too_long_is_told_so_and_recorded() {
    let world = World::usual().await;
    let ask = async |length: usize| {
        let request = Request::get("https://api.test/v1")
            .header("x-long", "x".repeat(length))
            .body(Full::<Bytes>::default())
            .unwrap();
        world.ask_http2("api.test:443", request).await.unwrap()
    };
    let answer = ask(70_000).await;
    assert_eq!(answer.status(), 431);
    assert_eq!(answer.headers()["valetkey-denial"], "ambiguous-request");
    assert_eq!(world.final_event().await.status, Some(431));
    assert_eq!(ask(60_000).await.status(), 200);
}

#[tokio::test]
async fn a_frame_that_would_be_two_requests_in_http1_forwards_nothing() {
    let world = World::usual().await;
    let good = [
        field(":method", "GET"),
        field(":scheme", "https"),
        field(":authority", "api.test"),
        field(":path", "/open"),
    ]
    .concat();
    for bad in [
        [good.clone(), field("x", "a\r\nSmuggled: yes")].concat(),
        [good.clone(), field("x", "a\nSmuggled: yes")].concat(),
        [good.clone(), field("x", "a\0b")].concat(),
        [good.clone(), field("x: y\r\nz", "a")].concat(),
        [good.clone(), field("x:y", "a")].concat(),
        [good.clone(), field("Host", "api.test")].concat(),
        [good.clone(), field("host", "evil.test")].concat(),
        [good.clone(), field("transfer-encoding", "chunked")].concat(),
        [good.clone(), field("connection", "close")].concat(),
        [good.clone(), field("upgrade", "h2c")].concat(),
        [good.clone(), field("te", "gzip")].concat(),
        [good.clone(), field(":path", "/second")].concat(),
        [good.clone(), field("content-length", "5")].concat(),
        good.clone().replace("/open", "/a b c"),
        good.clone().replace("/open", "/a\r\nb"),
        good.clone().replace("GET", "G T"),
        good.clone().replace("https", "httpx"),
        good.clone().replace("api.test", "api@test"),
        good.clone().replace("api.test", "api.tes_"),
    ] {
        let mut frames = Frames::open(&world).await;
        frames.request(1, bad.as_bytes()).await;
        frames.end().await;
        assert!(world.provider.seen().is_empty(), "{bad:?}");
    }
    let mut frames = Frames::open(&world).await;
    frames.request(1, good.as_bytes()).await;
    assert_eq!(frames.answer(1).await.as_deref(), Some("200"));
    let mut second = world.tls("api.test:443").await;
    second.shutdown().await.unwrap();
}
