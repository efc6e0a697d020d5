//! Does the provider get the real key, in every place where keys stand, and nobody else?

use crate::support::provider::Provider;
use crate::support::{KEY, Plan, World};

fn secrets(inject: &str) -> String {
    format!("[api]\nhosts = [\"api.test\"]\ninject = {inject}\nsource = {{ file = \"{{KEY}}\" }}\n")
}

async fn world(inject: &str) -> World {
    World::new(Plan {
        secrets: &secrets(inject),
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn an_absent_bearer_is_injected() {
    let world = World::usual().await;
    let answer = world.ask("api.test:443", "GET /v1", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "welcome"));
    let event = world.final_event().await;
    assert_eq!(event.secret.as_deref(), Some("api"));
    assert_eq!(event.status, Some(200));
    assert_eq!(event.bytes_out, Some(7));
}

#[tokio::test]
async fn a_bearer_placeholder_is_swapped() {
    let world = World::usual().await;
    let field = format!("Authorization: bearer {}\r\n", world.placeholder("api"));
    let answer = world.ask("api.test:443", "GET /v1", &field).await;
    assert_eq!(answer.status, 200);
    let seen = world.provider.seen();
    assert_eq!(seen[0].fields["authorization"], format!("Bearer {KEY}"));
}

#[tokio::test]
async fn a_header_is_injected_and_swapped() {
    let world = world("{ header = \"X-Api-Key\" }").await;
    assert_eq!(world.ask("api.test:443", "GET /v1", "").await.status, 200);
    let field = format!("X-Api-Key: {}\r\n", world.placeholder("api"));
    assert_eq!(
        world.ask("api.test:443", "GET /v1", &field).await.status,
        200
    );
}

#[tokio::test]
async fn basic_is_decoded_swapped_and_encoded_again() {
    use base64::Engine;
    let world = world("\"basic\"").await;
    let pair = format!("git:{}", world.placeholder("api"));
    let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
    let field = format!("Authorization: Basic {encoded}\r\n");
    assert_eq!(
        world.ask("api.test:443", "GET /v1", &field).await.status,
        200
    );
}

#[tokio::test]
async fn a_query_parameter_is_injected_and_swapped() {
    let world = world("{ query = \"key\" }").await;
    assert_eq!(
        world.ask("api.test:443", "GET /v1?a=b", "").await.status,
        200
    );
    let line = format!("GET /v1?a=b&key={}", world.placeholder("api"));
    assert_eq!(world.ask("api.test:443", &line, "").await.status, 200);
    let foreign = world.ask("api.test:443", "GET /v1?key=mine", "").await;
    assert_eq!(foreign.code(), "foreign-credential");
}

#[tokio::test]
async fn a_path_is_swapped_and_logged_as_a_template() {
    let world = world("{ path = \"/bot{secret}/\" }").await;
    let line = format!("GET /bot{}/send", world.placeholder("api"));
    assert_eq!(world.ask("api.test:443", &line, "").await.status, 200);
    let event = world.final_event().await;
    assert_eq!(
        event.request.unwrap().path.as_deref(),
        Some("/bot{secret}/send")
    );
}

#[tokio::test]
async fn a_cookie_is_injected_and_swapped() {
    let world = world("{ cookie = \"session\" }").await;
    assert_eq!(world.ask("api.test:443", "GET /v1", "").await.status, 200);
    let field = format!("Cookie: a=1; session={}\r\n", world.placeholder("api"));
    assert_eq!(
        world.ask("api.test:443", "GET /v1", &field).await.status,
        200
    );
}

#[tokio::test]
async fn a_foreign_credential_is_refused_and_never_arrives() {
    let world = World::usual().await;
    for fields in [
        "Authorization: Bearer stranger\r\n".to_owned(),
        "X-Api-Key: stranger\r\n".to_owned(),
        format!("X_Api_Key: {}\r\n", "stranger"),
        format!(
            "Authorization: Bearer {0}\r\nAuthorization: Bearer {0}\r\n",
            world.placeholder("api")
        ),
        format!("Authorization: Bearer {}x\r\n", world.placeholder("api")),
    ] {
        let answer = world.ask("api.test:443", "GET /v1", &fields).await;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "foreign-credential"),
            "{fields}"
        );
    }
    assert!(world.provider.seen().is_empty());
}

#[tokio::test]
async fn a_placeholder_at_another_host_is_refused_and_reported() {
    let policy = format!(
        "{}[[allow]]\nhost = \"other.test\"\n",
        crate::support::POLICY
    );
    let world = World::new(Plan {
        policy: &policy,
        hosts: &["api.test:443", "other.test:443"],
        ..Plan::default()
    })
    .await;
    let placeholder = world.placeholder("api");
    for (line, fields) in [
        (
            "GET /open".to_owned(),
            format!("Authorization: Bearer {placeholder}\r\n"),
        ),
        ("GET /open".to_owned(), format!("X-Note: {placeholder}\r\n")),
        (format!("GET /open?x={placeholder}"), String::new()),
        (format!("GET /open/{placeholder}"), String::new()),
        (
            "GET /open".to_owned(),
            format!("X-Note: {}\r\n", world.new.alias.danger_expose()),
        ),
        (
            "GET /open".to_owned(),
            format!("X-Note: {}\r\n", world.new.token.danger_expose()),
        ),
    ] {
        let answer = world.ask("other.test:443", &line, &fields).await;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "placeholder-misplaced"),
            "{line}"
        );
    }
    assert!(world.provider.seen().is_empty());
    let open = world
        .ask("other.test:443", "GET /open", "X-Note: nothing\r\n")
        .await;
    assert_eq!(open.status, 200);
    assert!(
        !world.provider.seen()[0]
            .fields
            .contains_key("authorization")
    );
    let reported = world.events().await;
    assert!(
        reported
            .iter()
            .any(|event| event.event == sdk::audit::EventKind::PlaceholderMisplaced)
    );
}

#[tokio::test]
async fn no_key_reaches_an_upstream_that_is_somebody_else() {
    let world = World::new(Plan {
        provider: Provider {
            is_impostor: true,
            ..Provider::default()
        },
        ..Plan::default()
    })
    .await;
    let answer = world.ask("api.test:443", "GET /v1", "").await;
    assert_eq!((answer.status, answer.code()), (502, "upstream-tls"));
    assert!(world.provider.seen().is_empty());
}

#[tokio::test]
async fn a_key_goes_out_in_clear_only_where_the_owner_says_so() {
    let policy = "version = 1\n[[allow]]\nhost = \"api.test\"\nscheme = \"http\"\nports = [80]\nsecret = \"api\"\n";
    let plain = Provider {
        is_tls: false,
        ..Provider::default()
    };
    let owner = "[api]\nhosts = [\"api.test\"]\nports = [80]\nplaintext = true\ninject = \"bearer\"\nsource = { file = \"{KEY}\" }\n";
    let world = World::new(Plan {
        policy,
        secrets: owner,
        hosts: &["api.test:80"],
        provider: plain,
        ..Plan::default()
    })
    .await;
    let mut stream = world.connect(world.door).await;
    let request = "GET http://api.test/v1 HTTP/1.1\r\nHost: api.test\r\n\r\n";
    let answer = crate::support::client::exchange(&mut stream, request).await;
    assert_eq!(answer.status, 200);
}
