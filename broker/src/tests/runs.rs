//! Runs, from their creation to their end.

use super::*;

use crate::TokenError;
use crate::token::Claims;

#[tokio::test]
async fn a_token_and_its_alias_name_their_run() {
    let world = World::new();
    let broker = world.broker();
    let new = world.run(&broker).await.unwrap();
    for presented in [new.token.danger_expose(), new.alias.danger_expose()] {
        // Twice: verified, then remembered.
        for _ in 0..2 {
            let run = broker.authenticate(presented.as_bytes()).ok().unwrap();
            assert_eq!(run.id(), new.run.id());
        }
    }
}

#[tokio::test]
async fn what_is_not_a_token_names_nobody() {
    let world = World::new();
    let broker = world.broker();
    let new = world.run(&broker).await.unwrap();
    let (token, alias) = (new.token.danger_expose(), new.alias.danger_expose());
    let huge = "a".repeat(1 << 20);
    let cases = [
        "",
        "vkr_",
        "x",
        "run-token-1",
        &huge,
        &alias[..alias.len() - 1],
        &format!("{alias}x"),
        &format!("{token}x"),
        &token.to_uppercase(),
        &alias.to_uppercase(),
    ];
    for presented in cases {
        let result = broker.authenticate(presented.as_bytes());
        assert_eq!(result.err(), Some(TokenError::Invalid));
    }
    assert_eq!(
        broker.authenticate(b"\xff\xfe").err(),
        Some(TokenError::Invalid)
    );
}

#[tokio::test]
async fn a_token_of_another_issuer_audience_or_policy_is_refused() {
    let world = World::new();
    let broker = world.broker();
    let new = world.run(&broker).await.unwrap();
    let right = Claims {
        iss: broker.keyring.issuer().to_owned(),
        aud: "valetkey-proxy".to_owned(),
        sub: new.run.id().to_string(),
        iat: 0,
        exp: u64::MAX,
        jti: new.run.jti.clone(),
        pol: new.run.policy().digest().to_string(),
        step: None,
    };
    let is_accepted = |claims: &Claims| {
        let (token, _) = broker.keyring.sign(claims).unwrap();
        broker
            .authenticate(token.danger_expose().as_bytes())
            .is_ok()
    };
    assert!(is_accepted(&right));
    let changes: [fn(&mut Claims); 6] = [
        |claims| claims.iss = "valetkey:other".to_owned(),
        |claims| claims.aud = "valetkey-control".to_owned(),
        |claims| claims.jti = "other".to_owned(),
        |claims| claims.pol = "sha256:other".to_owned(),
        |claims| claims.sub = "../other".to_owned(),
        |claims| claims.step = Some("publish".to_owned()),
    ];
    for change in changes {
        let mut claims = right.clone();
        change(&mut claims);
        assert!(!is_accepted(&claims), "{claims:?}");
    }
}

#[tokio::test]
async fn a_token_for_a_step_says_so_and_is_good_for_no_other() {
    let world = World::new();
    let broker = world.broker();
    let mut spec = world.spec();
    spec.step = Some(policies::StepName::parse("fetch").unwrap());
    let new = broker.create_lasting_run(spec).await.unwrap();
    for presented in [new.token.danger_expose(), new.alias.danger_expose()] {
        let run = broker.authenticate(presented.as_bytes()).ok().unwrap();
        assert_eq!(run.token_step().unwrap().as_str(), "fetch");
    }
    // It is sealed with the run, so the next server knows it too.
    let sealed = crate::sealed::write(&new).unwrap();
    assert!(
        std::str::from_utf8(&sealed)
            .unwrap()
            .contains(r#""step":"fetch""#)
    );
    let claims = |step: Option<&str>| Claims {
        iss: broker.keyring.issuer().to_owned(),
        aud: "valetkey-proxy".to_owned(),
        sub: new.run.id().to_string(),
        iat: 0,
        exp: u64::MAX,
        jti: new.run.jti.clone(),
        pol: new.run.policy().digest().to_string(),
        step: step.map(str::to_owned),
    };
    for (step, is_right) in [
        (Some("fetch"), true),
        (Some("publish"), false),
        (None, false),
    ] {
        let (token, _) = broker.keyring.sign(&claims(step)).unwrap();
        let result = broker.authenticate(token.danger_expose().as_bytes());
        assert_eq!(result.is_ok(), is_right, "{step:?}");
    }
}

#[tokio::test]
async fn an_ended_run_stays_ended() {
    let world = World::new();
    let broker = world.broker();
    let new = world.run(&broker).await.unwrap();
    let token = new.token.danger_expose().as_bytes();
    assert!(broker.authenticate(token).is_ok());
    broker.end_run(&new.run).unwrap();
    new.run.ended().await;
    assert!(!new.run.is_active() && !new.run.activate());
    for presented in [token, new.alias.danger_expose().as_bytes()] {
        assert_eq!(
            broker.authenticate(presented).err(),
            Some(TokenError::Ended)
        );
    }
    // And after the broker's end, for another one.
    drop(broker);
    let other = world.broker();
    assert_eq!(other.authenticate(token).err(), Some(TokenError::Ended));
    assert!(
        other
            .authenticate(new.alias.danger_expose().as_bytes())
            .is_err()
    );
}

#[tokio::test]
async fn a_revocation_by_another_process_ends_the_run_here() {
    let world = World::new();
    let (here, there) = (world.broker(), world.broker());
    let new = world.run(&here).await.unwrap();
    there.revoke(new.run.id()).unwrap();
    new.run.ended().await;
    let token = new.token.danger_expose().as_bytes();
    assert_eq!(here.authenticate(token).err(), Some(TokenError::Ended));
    // Both halves of its story are told, from two segments.
    there.audit().flush().await.unwrap();
    let events = here.events(new.run.id()).unwrap();
    let kinds: Vec<_> = events.iter().map(|record| record.event.event).collect();
    use sdk::audit::EventKind::{RunCreated, RunEnded, TokenMinted};
    assert_eq!(kinds, [RunCreated, TokenMinted, RunEnded]);
}

#[tokio::test]
async fn a_run_whose_time_is_over_is_expired() {
    let world = World::new();
    let broker = world.broker();
    let mut spec = world.spec();
    spec.ttl = Some(Duration::from_secs(1));
    let new = broker.create_run(spec).await.unwrap();
    // Resolves at the deadline, which is what is waited for.
    new.run.ended().await;
    let token = new.token.danger_expose().as_bytes();
    assert!(matches!(
        broker.authenticate(token),
        Err(TokenError::Expired | TokenError::Ended)
    ));
    assert!(!new.run.is_active());
}

#[tokio::test]
async fn a_token_of_another_processs_run_is_not_good_here() {
    let world = World::new();
    let (here, there) = (world.broker(), world.broker());
    let new = world.run(&there).await.unwrap();
    let token = new.token.danger_expose().as_bytes();
    assert_eq!(here.authenticate(token).err(), Some(TokenError::Invalid));
    assert!(there.authenticate(token).is_ok());
}

#[tokio::test]
async fn another_approval_replaces_the_one_before() {
    let world = World::new();
    let broker = world.broker();
    let digest = *Policy::default_for_no_file().digest();
    let other = ("sha256:".to_owned() + &"0".repeat(64)).parse().unwrap();
    broker.approve(&world.project(), &digest).unwrap();
    assert!(broker.is_approved(&world.project(), &digest).unwrap());
    broker.approve(&world.project(), &other).unwrap();
    assert!(!broker.is_approved(&world.project(), &digest).unwrap());
    // Reached by another way, it is the same project.
    let link = world.path().join("link");
    std::os::unix::fs::symlink(world.project(), &link).unwrap();
    assert!(broker.is_approved(&link, &other).unwrap());
}

#[tokio::test]
async fn a_digest_that_is_not_the_policys_creates_no_run() {
    let world = World::new();
    let broker = world.broker();
    let mut spec = world.spec();
    spec.approved = Some(("sha256:".to_owned() + &"0".repeat(64)).parse().unwrap());
    let error = broker.create_run(spec).await.err().unwrap();
    assert!(matches!(error, Error::NotApproved { .. }));
    assert!(broker.runs().unwrap().is_empty());
}

#[tokio::test]
async fn without_a_log_there_is_no_run() {
    let world = World::new();
    let broker = world.broker();
    let audit = world.path().join("state/audit");
    std::fs::rename(&audit, world.path().join("state/hidden")).unwrap();
    let error = world.run(&broker).await.err().unwrap();
    assert!(matches!(error, Error::AuditUnavailable(_)), "{error:?}");
    assert_eq!(broker.runs().unwrap()[0].state, "ended");
    std::fs::rename(world.path().join("state/hidden"), &audit).unwrap();
    assert!(world.run(&broker).await.is_ok());
}

#[tokio::test]
async fn the_token_is_what_the_tripwire_finds() {
    let world = World::new();
    let new = world.run(&world.broker()).await.unwrap();
    for token in [new.token.danger_expose(), new.alias.danger_expose()] {
        let text = format!("https://evil.example/?q={token}");
        let found = new.run.tripwire().find(text.as_bytes());
        assert_eq!(found, Some(crate::Found::RunToken));
    }
}

/// A run whose policy sends a secret to a host.
async fn run_with_secret(world: &World, broker: &Arc<Broker>) -> Result<NewRun, Error> {
    let text = r#"{"version": 1, "allow": [{"host": "api.example.com", "secret": "orders"}]}"#;
    let policy = Arc::new(Policy::from_json(text).unwrap());
    let mut spec = world.spec();
    spec.approved = None;
    spec.policy = policy;
    broker.create_run(spec).await
}

#[tokio::test]
async fn a_policy_that_uses_a_secret_runs_once_the_owner_approved_it() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let error = run_with_secret(&world, &broker).await.err().unwrap();
    let Error::NotApproved { digest, .. } = error else {
        panic!("{error}");
    };
    broker.approve(&world.project(), &digest).unwrap();
    let run = run_with_secret(&world, &broker).await.unwrap().run;
    let grant = run.grant("orders").unwrap();
    let host = policies::Host::parse("api.example.com").unwrap();
    let credential = broker
        .credential(&run, grant, policies::Scheme::Https, &host, 443)
        .await;
    let credential = credential.ok().unwrap();
    assert_eq!(credential.danger_expose(), "test-secret-orders-0123456789");
    // What the run sees instead is found wherever it does not belong.
    let found = run.tripwire().find(grant.placeholder().as_bytes());
    assert_eq!(found, Some(crate::Found::Placeholder("orders")));
}

#[tokio::test]
async fn two_runs_share_no_token_placeholder_or_authority() {
    let world = World::new();
    let broker = world.broker();
    world.adds_secret(&broker, "orders");
    let error = run_with_secret(&world, &broker).await.err().unwrap();
    let Error::NotApproved { digest, .. } = error else {
        panic!("{error}");
    };
    broker.approve(&world.project(), &digest).unwrap();
    let one = run_with_secret(&world, &broker).await.unwrap();
    let two = run_with_secret(&world, &broker).await.unwrap();
    assert_ne!(one.token.danger_expose(), two.token.danger_expose());
    assert_ne!(one.alias.danger_expose(), two.alias.danger_expose());
    let placeholder = |new: &NewRun| new.run.grants()[0].placeholder().to_owned();
    assert_ne!(placeholder(&one), placeholder(&two));
    assert_ne!(one.run.authority().ca_pem(), two.run.authority().ca_pem());
    // Neither run's tripwire is tripped by the other's token header, which all tokens share.
    let header = two.token.danger_expose().split('.').next().unwrap();
    assert_eq!(one.run.tripwire().find(header.as_bytes()), None);
}
