//! Is it always certain whose request it is?

use base64::Engine;

use crate::support::World;
use crate::support::client::exchange;

const CONNECT: &str = "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n";

#[tokio::test]
async fn without_a_token_a_407_comes_and_the_connection_stays() {
    let world = World::usual().await;
    let mut stream = world.connect(world.shared).await;
    let answer = exchange(&mut stream, &format!("{CONNECT}\r\n")).await;
    assert_eq!((answer.status, answer.code()), (407, "token-missing"));
    assert!(
        answer
            .field("proxy-authenticate")
            .unwrap()
            .starts_with("Basic")
    );
    let request = format!("{CONNECT}{}\r\n", world.authorization());
    assert_eq!(exchange(&mut stream, &request).await.status, 200);
    let mut stream = world
        .handshake(stream, "api.test", b"http/1.1")
        .await
        .unwrap();
    let answer = exchange(&mut stream, "GET /v1 HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn the_token_and_its_alias_are_taken_as_bearer_and_as_basic() {
    let world = World::usual().await;
    let (token, alias) = (
        world.new.token.danger_expose(),
        world.new.alias.danger_expose(),
    );
    let basic =
        |text: &str| base64::engine::general_purpose::STANDARD.encode(format!("run:{text}"));
    for value in [
        format!("Bearer {token}"),
        format!("Bearer {alias}"),
        format!("Basic {}", basic(token)),
        format!("Basic {}", basic(alias)),
    ] {
        let mut stream = world.connect(world.shared).await;
        let request = format!("{CONNECT}Proxy-Authorization: {value}\r\n\r\n");
        assert_eq!(exchange(&mut stream, &request).await.status, 200);
    }
}

#[tokio::test]
async fn a_false_token_is_refused() {
    let world = World::usual().await;
    let token = world.new.token.danger_expose();
    for value in [
        format!("Bearer {token}x"),
        "Bearer ".into(),
        "Bearer".into(),
        format!("Bearer bad, Bearer {token}"),
    ] {
        let mut stream = world.connect(world.shared).await;
        let request = format!("{CONNECT}Proxy-Authorization: {value}\r\n\r\n");
        let answer = exchange(&mut stream, &request).await;
        assert_eq!(
            (answer.status, answer.code()),
            (407, "token-invalid"),
            "{value}"
        );
    }
    assert_eq!(world.provider.connections(), 0);
}

#[tokio::test]
async fn a_token_through_the_door_of_another_run_is_refused() {
    let world = World::usual().await;
    let project = tempfile::tempdir().unwrap();
    let other = crate::support::run(&world.broker, crate::support::POLICY, project.path()).await;
    let mut stream = world.connect(world.door).await;
    let field = format!(
        "Proxy-Authorization: Bearer {}\r\n",
        other.token.danger_expose()
    );
    let answer = exchange(&mut stream, &format!("{CONNECT}{field}\r\n")).await;
    assert_eq!(answer.code(), "wrong-door");
    let own = format!("{CONNECT}{}\r\n", world.authorization());
    assert_eq!(exchange(&mut stream, &own).await.status, 200);
    // Where the door is nobody's, the same token is as good as any: it is the door that keeps it out.
    let mut stream = world.connect(world.shared).await;
    let request = format!("{CONNECT}{field}\r\n");
    assert_eq!(exchange(&mut stream, &request).await.status, 200);
}

#[tokio::test]
async fn the_token_never_arrives_upstream() {
    let world = World::usual().await;
    let answer = world
        .ask("api.test:443", "GET /v1", &world.authorization())
        .await;
    assert_eq!(answer.status, 200);
    assert!(
        !world.provider.seen()[0]
            .fields
            .contains_key("proxy-authorization")
    );
}

#[tokio::test]
async fn after_the_end_of_a_run_its_token_is_refused() {
    let world = World::usual().await;
    world.broker.end_run(&world.new.run).unwrap();
    let mut stream = world.connect(world.shared).await;
    let request = format!("{CONNECT}{}\r\n", world.authorization());
    let answer = exchange(&mut stream, &request).await;
    assert_eq!((answer.status, answer.code()), (407, "run-ended"));
}

#[tokio::test]
async fn each_request_of_a_connection_needs_the_token() {
    let world = World::usual().await;
    let mut stream = world.connect(world.shared).await;
    let request = |fields: &str| {
        format!("GET https://api.test/v1 HTTP/1.1\r\nHost: api.test\r\n{fields}\r\n")
    };
    let with = request(&world.authorization());
    assert_eq!(exchange(&mut stream, &with).await.status, 200);
    assert_eq!(
        exchange(&mut stream, &request("")).await.code(),
        "token-missing"
    );
    assert_eq!(exchange(&mut stream, &with).await.status, 200);
    assert_eq!(world.provider.seen().len(), 2);
}
