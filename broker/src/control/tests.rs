//! What callers of the control API see.

use std::collections::BTreeMap;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::tests::World;

use super::*;

struct Here(PathBuf);

impl Projects for Here {
    fn open(&self, policy: &Path, _: Option<&Path>) -> Result<(Arc<Policy>, PathBuf), String> {
        if policy.ends_with("valetkey.toml") {
            Ok((Arc::new(Policy::default_for_no_file()), self.0.clone()))
        } else {
            Err("no such policy".to_owned())
        }
    }

    fn access(&self, run: &Run, token: &RunToken, alias: &Alias) -> Result<CreatedRun, String> {
        Ok(CreatedRun {
            run: run.id().clone(),
            token: token.danger_expose().to_owned(),
            alias: alias.danger_expose().to_owned(),
            proxy: None,
            gateway: None,
            ca_pem: run.authority().ca_pem().to_owned(),
            ca_bundle: String::new(),
            env: BTreeMap::new(),
            expires: run.expires_at().to_string(),
        })
    }
}

mod steps;

struct Served {
    world: World,
    broker: Arc<Broker>,
    socket: PathBuf,
    shutdown: CancellationToken,
    server: JoinHandle<()>,
}

impl Served {
    async fn new() -> Self {
        Self::of(World::new()).await
    }

    /// Serves an installation, as the next process would.
    async fn of(world: World) -> Self {
        Self::with(world, None).await
    }

    async fn with(world: World, runner: Option<Arc<dyn StepRunner>>) -> Self {
        let broker = world.broker();
        let socket = world.path().join("control.sock");
        let shutdown = CancellationToken::new();
        let listener = UnixListener::bind(&socket).unwrap();
        let here = Arc::new(Here(world.project()));
        let resumed = broker.resume_runs().await.unwrap();
        let api = serve(
            listener,
            Arc::clone(&broker),
            here,
            runner,
            resumed,
            shutdown.clone(),
        );
        let server = tokio::spawn(api);
        Self {
            world,
            broker,
            socket,
            shutdown,
            server,
        }
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.send(method, path, body, "application/json").await
    }

    async fn send(&self, method: Method, path: &str, body: String, kind: &str) -> (u16, Value) {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "valetkey")
            .header("content-type", kind)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn create(&self) -> Value {
        let digest = Policy::default_for_no_file().digest().to_string();
        let body = json!({"policy": "/p/valetkey.toml", "ttl": "5m", "approved": digest});
        let (status, created) = self.call(Method::POST, "/v1/runs", Some(body)).await;
        assert_eq!(status, 201, "{created}");
        created
    }
}

#[tokio::test]
async fn a_run_is_created_used_shown_and_ended() {
    let served = Served::new().await;
    let created = served.create().await;
    let token = created["token"].as_str().unwrap();
    assert!(served.broker.authenticate(token.as_bytes()).is_ok());
    let path = format!("/v1/runs/{}", created["run"].as_str().unwrap());
    let (_, shown) = served.call(Method::GET, &path, None).await;
    assert_eq!(shown["state"], "active");
    let (_, access) = served
        .call(Method::GET, &format!("{path}/access"), None)
        .await;
    assert_eq!(access["token"], token);
    let (status, ended) = served.call(Method::DELETE, &path, None).await;
    assert_eq!((status, &ended["state"]), (200, &json!("ended")));
    assert!(served.broker.authenticate(token.as_bytes()).is_err());
    let (status, _) = served
        .call(Method::GET, &format!("{path}/access"), None)
        .await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn how_to_use_a_run_is_told_by_the_next_server_too() {
    let served = Served::new().await;
    let created = served.create().await;
    served.shutdown.cancel();
    served.server.await.unwrap();
    drop(served.broker);
    std::fs::remove_file(&served.socket).unwrap();
    let served = Served::of(served.world).await;
    let path = format!("/v1/runs/{}/access", created["run"].as_str().unwrap());
    let (status, access) = served.call(Method::GET, &path, None).await;
    assert_eq!((status, &access), (200, &created));
}

#[tokio::test]
async fn the_events_of_a_run_are_told_without_its_token() {
    let served = Served::new().await;
    let created = served.create().await;
    let path = format!("/v1/audit?run={}", created["run"].as_str().unwrap());
    let (status, events) = served.call(Method::GET, &path, None).await;
    assert_eq!(status, 200);
    assert_eq!(events[0]["event"]["event"], "run.created");
    let text = events.to_string();
    for secret in ["token", "alias"] {
        assert!(!text.contains(created[secret].as_str().unwrap()));
    }
}

#[tokio::test]
async fn what_is_wrong_is_told_as_a_problem() {
    let served = Served::new().await;
    let digest = "sha256:".to_owned() + &"0".repeat(64);
    let cases = [
        (Method::GET, "/v1/nothing", None, 404),
        (Method::GET, "/v1/runs/run_x", None, 404),
        (Method::GET, "/v1/runs/run_0000000000000000000", None, 404),
        (
            Method::DELETE,
            "/v1/runs/run_0000000000000000000",
            None,
            404,
        ),
        (Method::PUT, "/v1/runs", None, 405),
        (Method::GET, "/v1/audit", None, 400),
        (
            Method::POST,
            "/v1/runs",
            Some(json!({"policy": "/p/other.toml"})),
            422,
        ),
        (
            Method::POST,
            "/v1/runs",
            Some(json!({"policy": "valetkey.toml"})),
            422,
        ),
        (
            Method::POST,
            "/v1/runs",
            Some(json!({"policy": "/p/valetkey.toml", "project": "p"})),
            422,
        ),
        (
            Method::POST,
            "/v1/runs",
            Some(json!({"policy": "/p/valetkey.toml", "ttl": "x"})),
            422,
        ),
        (
            Method::POST,
            "/v1/runs",
            Some(json!({"policy": "/p/valetkey.toml", "more": 1})),
            422,
        ),
        (
            Method::POST,
            "/v1/runs",
            Some(json!({"policy": "/p/valetkey.toml", "approved": digest})),
            403,
        ),
    ];
    for (method, path, body, expected) in cases {
        let name = format!("{method} {path} {body:?}");
        let (status, problem) = served.call(method, path, body).await;
        assert_eq!(status, expected, "{name}");
        assert_eq!(problem["status"], expected, "{name}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_or_no_json_is_refused() {
    let served = Served::new().await;
    let large = format!("{{\"policy\":\"/{}\"}}", "a".repeat(70_000));
    let (status, _) = served
        .send(Method::POST, "/v1/runs", large, "application/json")
        .await;
    assert_eq!(status, 413);
    let form = "policy=/p/valetkey.toml".to_owned();
    let (status, _) = served
        .send(Method::POST, "/v1/runs", form, "text/plain")
        .await;
    assert_eq!(status, 415);
}

#[tokio::test]
async fn health_and_the_description_are_there() {
    let served = Served::new().await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(served.call(Method::GET, path, None).await.0, 200);
    }
    let (_, description) = served.call(Method::GET, "/v1/openapi.json", None).await;
    assert_eq!(description["openapi"], "3.1.0");
}

#[tokio::test]
async fn secrets_are_listed_by_name_only() {
    let served = Served::new().await;
    served.world.adds_secret(&served.broker, "orders");
    let (_, list) = served.call(Method::GET, "/v1/secrets", None).await;
    assert_eq!(list[0]["name"], "orders");
    assert!(!list.to_string().contains("test-secret"));
}

#[tokio::test]
async fn it_stops_when_told() {
    let served = Served::new().await;
    served.create().await;
    served.shutdown.cancel();
    served.server.await.unwrap();
}
