//! When a secret's value is released, and that it shows nowhere else.

use std::sync::atomic::AtomicU8;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use policies::{Host, Scheme};
use sdk::RunId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;

use crate::run::CREATED;
use crate::{Alias, Authority, Credential, CredentialError, Grant, Run, RunToken, Tripwire};

// What holds a secret cannot be printed, copied or written down by accident: this does not compile otherwise.
static_assertions::assert_not_impl_any!(
    Credential: std::fmt::Debug, std::fmt::Display, Clone, serde::Serialize
);
static_assertions::assert_not_impl_any!(
    RunToken: std::fmt::Debug, std::fmt::Display, Clone, serde::Serialize
);
static_assertions::assert_not_impl_any!(
    Alias: std::fmt::Debug, std::fmt::Display, Clone, serde::Serialize
);

/// A run with a grant for each secret of the owner.
fn run_with_grants(broker: &Broker) -> Run {
    let bindings = broker.secrets.bindings().unwrap();
    let grants: Vec<Grant> = bindings
        .values()
        .map(|binding| Grant::new(Arc::clone(binding), "vkp_placeholder".to_owned()))
        .collect();
    let now = Timestamp::now();
    let id = RunId::new(1, 2);
    let run = Run {
        authority: Authority::new(&id, now, Duration::from_secs(60)).unwrap(),
        tripwire: Tripwire::new(std::iter::empty(), &["vkr_x"]).unwrap(),
        id,
        policy: ArcSwap::from_pointee(Policy::default_for_no_file()),
        project: "/p".into(),
        created: now,
        expires: now,
        deadline: Instant::now() + Duration::from_secs(60),
        jti: String::new(),
        step: None,
        grants,
        state: AtomicU8::new(CREATED),
        ended: CancellationToken::new(),
    };
    assert!(run.activate());
    run
}

async fn release(
    broker: &Broker,
    run: &Run,
    scheme: Scheme,
    host: &str,
    port: u16,
) -> Result<String, CredentialError> {
    let host = Host::parse(host).unwrap();
    let grant = &run.grants()[0];
    let credential = broker.credential(run, grant, scheme, &host, port).await?;
    Ok(credential.danger_expose().to_owned())
}

#[tokio::test]
async fn a_secret_is_released_for_its_host_only() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let run = run_with_grants(&broker);
    let value = release(&broker, &run, Scheme::Https, "api.example.com", 443).await;
    assert_eq!(value.unwrap(), "test-secret-orders-0123456789");
    for (scheme, host, port) in [
        (Scheme::Http, "api.example.com", 80),
        (Scheme::Https, "api.example.com", 8443),
        (Scheme::Https, "evil.example", 443),
        (Scheme::Https, "api.example.com.evil.example", 443),
    ] {
        let error = release(&broker, &run, scheme, host, port)
            .await
            .unwrap_err();
        assert!(matches!(error, CredentialError::OutsideBinding { .. }));
    }
}

#[tokio::test]
async fn a_grant_of_another_run_is_no_grant() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let (one, two) = (run_with_grants(&broker), run_with_grants(&broker));
    let host = Host::parse("api.example.com").unwrap();
    let grant = &two.grants()[0];
    let result = broker
        .credential(&one, grant, Scheme::Https, &host, 443)
        .await;
    assert_eq!(
        result.err(),
        Some(CredentialError::NotGranted("orders".to_owned()))
    );
    assert!(
        broker
            .credential(&two, grant, Scheme::Https, &host, 443)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn an_ended_run_gets_nothing() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let run = run_with_grants(&broker);
    release(&broker, &run, Scheme::Https, "api.example.com", 443)
        .await
        .unwrap();
    run.end();
    let error = release(&broker, &run, Scheme::Https, "api.example.com", 443).await;
    assert_eq!(error.unwrap_err(), CredentialError::RunEnded);
    assert!(run.grants()[0].value.current.load().is_none());
}

#[tokio::test]
async fn a_value_is_read_once_for_many_requests_and_that_is_on_record() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let run = Arc::new(run_with_grants(&broker));
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let (broker, run) = (Arc::clone(&broker), Arc::clone(&run));
            tokio::spawn(async move {
                release(&broker, &run, Scheme::Https, "api.example.com", 443)
                    .await
                    .unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    broker.audit().flush().await.unwrap();
    let text = log(&world);
    assert_eq!(text.matches("secret.used").count(), 1);
}

#[tokio::test]
async fn a_planted_secret_shows_nowhere_but_where_it_is_released() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let run = run_with_grants(&broker);
    release(&broker, &run, Scheme::Https, "api.example.com", 443)
        .await
        .unwrap();
    let outside = release(&broker, &run, Scheme::Https, "evil.example", 443)
        .await
        .unwrap_err();
    let info = broker.secrets().list().unwrap();
    broker.audit().flush().await.unwrap();
    let seen = format!("{outside} {outside:?} {info:?} {}", log(&world));
    assert!(!seen.contains("test-secret"), "{seen}");
    // Not in a file of the state either: it is sealed, also in what SQLite keeps beside its database.
    drop(broker);
    for entry in std::fs::read_dir(world.path().join("state")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = memchr::memmem::find(&bytes, b"test-secret");
            assert_eq!(found, None, "{}", path.display());
        }
    }
}

/// The whole log.
fn log(world: &World) -> String {
    std::fs::read_dir(world.path().join("state/audit"))
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect()
}
