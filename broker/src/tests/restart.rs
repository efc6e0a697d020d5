//! Runs that go on after the process that served them was killed.

use std::io::{BufRead, BufReader};

use memchr::memmem;
use policies::{Host, Scheme};
use sdk::audit::EventKind;

use super::*;

use super::crash::{folder, start};
use crate::{Found, TokenError};

/// Approves a policy that uses a secret, creates a lasting run under it, and tells of it until it is killed.
#[tokio::test]
#[ignore = "a process that a test starts and kills"]
#[expect(clippy::print_stdout, reason = "it is how the test hears of it")]
async fn creates_a_lasting_run_and_waits() {
    let Some(folder) = folder() else {
        return;
    };
    let broker = Broker::open(settings(&folder)).unwrap();
    let new = broker.create_lasting_run(spec(&folder)).await.unwrap();
    let grant = &new.run.grants()[0];
    let key = new.run.authority().danger_expose_key().unwrap();
    let told = [
        new.run.id().as_str(),
        new.token.danger_expose(),
        new.alias.danger_expose(),
        grant.placeholder(),
        &crate::hex::encode(&key),
        &crate::hex::encode(new.run.authority().ca_pem().as_bytes()),
    ];
    println!("\nlasting {}", told.join(" "));
    std::future::pending::<()>().await;
}

fn spec(folder: &Path) -> CreateRunSpec {
    let text = r#"{"version": 1, "allow": [{"host": "api.example.com", "secret": "orders"}]}"#;
    let policy = Arc::new(Policy::from_json(text).unwrap());
    CreateRunSpec {
        approved: Some(*policy.digest()),
        policy,
        project: folder.join("project"),
        ttl: Some(Duration::from_secs(600)),
        step: None,
    }
}

/// What a client knows of its run.
struct Known {
    run: sdk::RunId,
    token: String,
    alias: String,
    placeholder: String,
    ca_key: Vec<u8>,
    ca_pem: String,
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

/// An installation with a secret, whose server was killed with a run.
fn killed() -> (World, Known) {
    let world = World::new();
    world.adds_secret(&world.broker(), "orders");
    let known = kill_a_server(&world);
    (world, known)
}

fn kill_a_server(world: &World) -> Known {
    let mut child = start("restart::creates_a_lasting_run_and_waits", world);
    let told = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("lasting ").map(str::to_owned))
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let told: Vec<&str> = told.split(' ').collect();
    Known {
        run: told[0].parse().unwrap(),
        token: told[1].to_owned(),
        alias: told[2].to_owned(),
        placeholder: told[3].to_owned(),
        ca_key: unhex(told[4]),
        ca_pem: String::from_utf8(unhex(told[5])).unwrap(),
    }
}

#[tokio::test]
async fn a_run_goes_on_as_it_was_after_its_server_was_killed() {
    let (world, known) = killed();
    let broker = world.broker();
    let resumed = broker.resume_runs().await.unwrap();
    assert_eq!(resumed.len(), 1);
    for presented in [&known.token, &known.alias] {
        let run = broker.authenticate(presented.as_bytes()).ok().unwrap();
        assert_eq!(*run.id(), known.run);
        let found = run.tripwire().find(presented.as_bytes());
        assert_eq!(found, Some(Found::RunToken));
    }
    let run = &resumed[0].run;
    assert_eq!(run.authority().ca_pem(), known.ca_pem);
    assert_eq!(*run.policy().digest(), *spec(world.path()).policy.digest());
    let grant = run.grant("orders").unwrap();
    assert_eq!(grant.placeholder(), known.placeholder);
    let host = Host::parse("api.example.com").unwrap();
    let credential = broker.credential(run, grant, Scheme::Https, &host, 443);
    assert!(credential.await.is_ok());
    // All of its story is told, from both processes.
    broker.audit().flush().await.unwrap();
    let events = broker.events(&known.run).unwrap();
    let kinds: Vec<_> = events.iter().map(|record| record.event.event).collect();
    use EventKind::{RunCreated, RunResumed, SecretUsed, TokenMinted};
    assert_eq!(kinds, [RunCreated, TokenMinted, RunResumed, SecretUsed]);
    assert_eq!(broker.verify_audit().unwrap().findings, []);
}

#[tokio::test]
async fn grants_stay_as_they_were_whatever_the_owner_says_by_now() {
    let (world, _known) = killed();
    let broker = world.broker();
    // The same name goes elsewhere now.
    broker.secrets().remove("orders").unwrap();
    let new = NewSecret {
        hosts: vec!["elsewhere.example.com".to_owned()],
        slot: Some(policies::Slot::bearer()),
        provider: None,
    };
    let value = Zeroizing::new("test-secret-orders-0123456789".to_owned());
    broker
        .secrets()
        .add("orders", &new, value, crate::Existing::Keep)
        .unwrap();
    let resumed = broker.resume_runs().await.unwrap();
    let grant = resumed[0].run.grant("orders").unwrap();
    let covers = |host| grant.covers(Scheme::Https, &Host::parse(host).unwrap(), 443);
    assert!(covers("api.example.com") && !covers("elsewhere.example.com"));
}

#[tokio::test]
async fn a_run_that_was_revoked_meanwhile_does_not_come_back() {
    let (world, known) = killed();
    world.broker().revoke(&known.run).unwrap();
    let broker = world.broker();
    assert!(broker.resume_runs().await.unwrap().is_empty());
    let result = broker.authenticate(known.token.as_bytes());
    assert_eq!(result.err(), Some(TokenError::Ended));
    assert!(broker.authenticate(known.alias.as_bytes()).is_err());
    // And nothing is kept of it.
    assert!(broker.store.open_run(known.run.as_str()).unwrap().is_none());
    let digest = spec(world.path()).policy.digest().to_string();
    assert!(broker.store.open_policy(&digest).unwrap().is_none());
}

#[tokio::test]
async fn a_run_whose_time_is_over_does_not_come_back() {
    let (world, known) = killed();
    let broker = world.broker();
    let expires = broker.store.run(&known.run).unwrap().unwrap().expires;
    assert_eq!(broker.store.sealed_runs(expires - 1).unwrap().len(), 1);
    assert!(broker.store.sealed_runs(expires).unwrap().is_empty());
    broker.store.forget_runs(expires).unwrap();
    assert!(broker.resume_runs().await.unwrap().is_empty());
    assert!(broker.authenticate(known.token.as_bytes()).is_err());
    assert!(broker.store.open_run(known.run.as_str()).unwrap().is_none());
}

#[tokio::test]
async fn a_run_that_is_served_is_not_taken_over() {
    let world = World::new();
    let (one, two) = (world.broker(), world.broker());
    world.adds_secret(&one, "orders");
    let new = one.create_lasting_run(spec(world.path())).await.unwrap();
    assert!(two.resume_runs().await.unwrap().is_empty());
    let token = new.token.danger_expose().as_bytes();
    assert!(one.authenticate(token).is_ok() && two.authenticate(token).is_err());
    // Its server is gone without an end: now it is.
    drop((one, new.run));
    assert_eq!(two.resume_runs().await.unwrap().len(), 1);
    assert!(two.authenticate(token).is_ok());
}

#[tokio::test]
async fn a_run_goes_on_however_often_its_server_is_killed_and_one_that_is_not_lasting_ends() {
    let (world, known) = killed();
    for _ in 0..3 {
        let broker = world.broker();
        assert_eq!(broker.resume_runs().await.unwrap().len(), 1);
        assert!(broker.authenticate(known.token.as_bytes()).is_ok());
    }
    let broker = world.broker();
    let other = world.run(&broker).await.unwrap();
    drop(broker);
    let broker = world.broker();
    assert_eq!(broker.resume_runs().await.unwrap().len(), 1);
    let token = other.token.danger_expose().as_bytes();
    assert!(broker.authenticate(token).is_err());
    assert!(broker.authenticate(known.token.as_bytes()).is_ok());
}

#[tokio::test]
async fn of_a_run_that_is_not_lasting_nothing_is_sealed() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let sealed = |new: &NewRun| broker.store.open_run(new.run.id().as_str()).unwrap();
    let new = broker.create_run(spec(world.path())).await.unwrap();
    assert!(sealed(&new).is_none());
    let digest = new.run.policy().digest().to_string();
    assert!(broker.store.open_policy(&digest).unwrap().is_none());
    let lasting = broker.create_lasting_run(spec(world.path())).await.unwrap();
    assert!(sealed(&lasting).is_some());
}

#[tokio::test]
async fn what_was_changed_in_the_store_does_not_go_on() {
    let (world, known) = killed();
    let path = world.path().join("state/broker.db");
    let connection = rusqlite::Connection::open(path).unwrap();
    let changed = connection
        .execute("UPDATE sealed_runs SET sealed = zeroblob(100)", [])
        .unwrap();
    assert_eq!(changed, 1);
    drop(connection);
    let broker = world.broker();
    assert!(broker.resume_runs().await.unwrap().is_empty());
    let result = broker.authenticate(known.token.as_bytes());
    assert_eq!(result.err(), Some(TokenError::Ended));
}

#[tokio::test]
async fn nothing_of_a_run_is_in_clear_in_the_state_folder() {
    let (world, known) = killed();
    // The number that the key is: in PKCS #8 after its headers (RFC 5958, RFC 5915).
    let number = &known.ca_key[36..68];
    let encoded = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(&known.ca_key)
    };
    let secrets: [&[u8]; 6] = [
        number,
        &encoded.as_bytes()[60..],
        known.token.as_bytes(),
        known.alias.as_bytes(),
        known.placeholder.as_bytes(),
        b"PRIVATE KEY",
    ];
    let (mut folders, mut files) = (vec![world.path().join("state")], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            files += 1;
            for secret in secrets {
                assert_eq!(memmem::find(&bytes, secret), None, "{}", path.display());
            }
        }
    }
    assert!(files >= 5);
    // The key is that of the certificate: what was looked for is what there is to find.
    let authority = crate::Authority::again(&known.run, &known.ca_key, &known.ca_pem).unwrap();
    assert_eq!(*authority.danger_expose_key().unwrap(), known.ca_key);
    assert_eq!(number.len(), 32);
    assert_eq!(known.ca_key[31..36], [2, 1, 1, 4, 32]);
}
