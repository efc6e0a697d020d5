//! What does a door of one step let through, and what do two steps of a run share?

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use policies::StepName;
use proxy::{DoorsOfRun, OpenDoors};
use tokio::io::AsyncReadExt;

use crate::support::client::{Answer, exchange};
use crate::support::{Plan, World};

const POLICY: &str = r#"
version = 1
[[allow]]
host = "api.test"
secret = "api"
[[allow]]
host = "other.test"
[steps.fetch]
allow = ["api.test"]
[steps.publish]
allow = ["other.test"]
[steps.quiet]
network = "none"
"#;

async fn world() -> World {
    World::new(Plan {
        policy: POLICY,
        hosts: &["api.test:443", "other.test:443"],
        ..Plan::default()
    })
    .await
}

/// Opens a door for a step.
fn open(world: &World, step: &str) -> (OpenDoors, SocketAddr) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let door = listener.local_addr().unwrap();
    let doors = DoorsOfRun {
        listeners: vec![listener],
        ..DoorsOfRun::default()
    };
    let step = Some(StepName::parse(step).unwrap());
    let run = Arc::clone(&world.new.run);
    (world.proxy.serve_run(doors, run, step).unwrap(), door)
}

/// Asks for a host through a door.
async fn ask(world: &World, door: SocketAddr, host: &str) -> Answer {
    let mut stream = world.connect(door).await;
    let request = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
    assert_eq!(exchange(&mut stream, &request).await.status, 200);
    let mut stream = world.handshake(stream, host, b"http/1.1").await.unwrap();
    exchange(
        &mut stream,
        &format!("GET /v1 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    )
    .await
}

#[tokio::test]
async fn a_door_judges_by_its_own_step() {
    let world = world().await;
    for (step, allowed) in [
        ("fetch", ["api.test"].as_slice()),
        ("publish", &["other.test"]),
        ("quiet", &[]),
        ("unnamed", &["api.test", "other.test"]),
    ] {
        let (_open, door) = open(&world, step);
        for host in ["api.test", "other.test"] {
            let answer = ask(&world, door, host).await;
            // The provider wants a key, and a rule without one brings none: that is its own refusal, not ours.
            let is_ours = answer.field("valetkey-denial").is_some();
            assert_eq!(!is_ours, allowed.contains(&host), "{step}: {host}");
        }
    }
    for event in world.finals().await {
        assert!(event.step.is_some(), "{event:?}");
    }
}

#[tokio::test]
async fn two_steps_share_no_connection_to_an_upstream() {
    let world = world().await;
    let (_fetch, fetch) = open(&world, "fetch");
    let (_other, other) = open(&world, "unnamed");
    // The twin: one step uses its connection again.
    for _ in 0..2 {
        assert_eq!(ask(&world, fetch, "api.test").await.status, 200);
    }
    assert_eq!(world.provider.connections(), 1);
    assert_eq!(ask(&world, other, "api.test").await.status, 200);
    assert_eq!(world.provider.connections(), 2);
}

#[tokio::test]
async fn a_steps_door_and_what_came_through_it_are_closed_when_it_is_over() {
    let world = world().await;
    let (open, door) = open(&world, "fetch");
    let mut stream = world.connect(door).await;
    let request = "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n";
    assert_eq!(exchange(&mut stream, request).await.status, 200);
    drop(open);
    let mut rest = Vec::new();
    // Closed or reset: nothing comes any more.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    // The twin: the run goes on behind its other door.
    assert_eq!(ask(&world, world.door, "api.test").await.status, 200);
}
