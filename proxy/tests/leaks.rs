//! Does anything of a run that must not leave get out in an unusual place, or in an unusual spelling?

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use sdk::audit::EventKind;

use crate::support::client::exchange;
use crate::support::provider::Provider;
use crate::support::{Plan, World};

const POLICY: &str = r#"
version = 1
[[allow]]
host = "api.test"
secret = "api"
[[allow]]
host = "*.wild.test"
scheme = "http"
ports = [80]
"#;

async fn world() -> World {
    World::new(Plan {
        policy: POLICY,
        ..Plan::default()
    })
    .await
}

/// With the first letter in percent-encoding, which no encoder would do.
fn in_percent(text: &str) -> String {
    format!("%{:02X}{}", text.as_bytes()[0], &text[1..])
}

#[tokio::test]
async fn the_token_is_found_in_every_part_of_a_header() {
    let world = world().await;
    for token in [
        world.new.alias.danger_expose(),
        world.new.token.danger_expose(),
    ] {
        let percent = in_percent(token);
        let twice = percent.replace('%', "%25");
        for (line, field) in [
            (format!("{token} /v1"), String::new()),
            (format!("GET /v1?a={percent}"), String::new()),
            (format!("GET /v1?a={twice}"), String::new()),
            (format!("GET /{percent}"), String::new()),
            ("GET /v1".into(), format!("{token}: 1\r\n")),
            ("GET /v1".into(), format!("X-{token}: 1\r\n")),
            ("GET /v1".into(), format!("Referer: /?{percent}\r\n")),
            ("GET /v1".into(), format!("User-Agent: a/{twice}\r\n")),
        ] {
            let answer = world.ask("api.test:443", &line, &field).await;
            assert_eq!(answer.code(), "placeholder-misplaced", "{line} {field}");
        }
    }
    assert!(world.provider.seen().is_empty());
    let answer = world
        .ask("api.test:443", "FROB /v1?a=%76%256Br", "X-%76: %76kr_\r\n")
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_placeholder_behind_percent_encoding_is_found() {
    let world = world().await;
    let percent = in_percent(&world.placeholder("api"));
    let answer = world
        .ask("api.test:443", &format!("GET /v1?a={percent}"), "")
        .await;
    assert_eq!(answer.code(), "placeholder-misplaced");
}

#[tokio::test]
async fn the_token_is_found_in_a_host_that_a_rule_allows() {
    let world = world().await;
    let alias = world.new.alias.danger_expose();
    let mut stream = world.connect(world.door).await;
    let request = |host: &str| format!("GET http://{host}.wild.test/ HTTP/1.1\r\n\r\n");
    let answer = exchange(&mut stream, &request(alias)).await;
    assert_eq!(answer.code(), "placeholder-misplaced");
    // Nothing resolves here, but it was allowed.
    let answer = exchange(&mut stream, &request("fine")).await;
    assert_eq!(answer.code(), "upstream-unreachable");
}

#[tokio::test]
async fn the_token_in_a_trailer_is_dropped_and_reported() {
    let world = World::new(Plan {
        provider: Provider {
            is_http2: true,
            ..Provider::default()
        },
        ..Plan::default()
    })
    .await;
    let token = world.new.token.danger_expose().to_owned();
    for (value, is_passed) in [(token.as_str(), false), ("fine", true)] {
        let stream = world.tunnel("api.test:443").await;
        let stream = world.handshake(stream, "api.test", b"h2").await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(
            hyper_util::rt::TokioExecutor::new(),
            hyper_util::rt::TokioIo::new(stream),
        )
        .await
        .unwrap();
        tokio::spawn(connection);
        let trailers = [("x-note".parse().unwrap(), value.parse().unwrap())];
        let trailers = std::future::ready(Some(Ok(trailers.into_iter().collect())));
        let body = Full::new(Bytes::from_static(b"x")).with_trailers(trailers);
        let request = Request::post("https://api.test/v1")
            .header("trailer", "x-note")
            .body(body)
            .unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        let seen = world.provider.seen();
        let trailers = seen.last().unwrap().trailers.clone().unwrap_or_default();
        assert_eq!(trailers.contains_key("x-note"), is_passed);
    }
    world.broker.audit().flush().await.unwrap();
    let events = world.broker.events(world.new.run.id()).unwrap();
    let reported = events
        .iter()
        .filter(|record| record.event.event == EventKind::PlaceholderMisplaced);
    assert_eq!(reported.count(), 1);
}

#[tokio::test]
async fn a_second_key_that_only_some_servers_see_is_foreign() {
    let secrets = "[api]\nhosts = [\"api.test\"]\ninject = { query = \"key\" }\nsource = { file = \"{KEY}\" }\n";
    let world = World::new(Plan {
        secrets,
        ..Plan::default()
    })
    .await;
    for query in [
        "a=1;key=mine",
        "a;key=mine",
        "a=1;%6Bey=mine",
        "%6bey=mine",
        "KEY=mine",
        "key[]=mine",
        "key%00x=mine",
        "+key=mine",
        "key%20=mine",
        "key",
    ] {
        let line = format!("GET /v1?{query}");
        let answer = world.ask("api.test:443", &line, "").await;
        assert_eq!(answer.code(), "foreign-credential", "{query}");
    }
    assert!(world.provider.seen().is_empty());
    for query in ["a=1;b=2", "monkey=1", "keys=1", "a=key"] {
        let line = format!("GET /v1?{query}");
        let answer = world.ask("api.test:443", &line, "").await;
        assert_eq!(answer.status, 200, "{query}");
    }
}
