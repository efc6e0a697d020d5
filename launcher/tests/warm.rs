//! Sandboxes that are built before their command is known.

use launcher::Warm;
use sdk::report::{Failure, Limit, Outcome};

use crate::support::{Box, as_each_user};

/// What a command prints in a sandbox that was built before it came; none if that sandbox is not what is asked for.
fn printed(warm: Warm, sandbox: &Box) -> Option<String> {
    let mut started = warm.dispatch(&sandbox.spec)?;
    started.release().unwrap();
    let finished = started.wait(&mut |_, _| {});
    assert_eq!(finished.outcome, Outcome::Passed, "{finished:?}");
    Some(finished.stdout.text)
}

#[test]
fn a_warm_sandbox_runs_the_command_that_comes() {
    as_each_user("warm::a_warm_sandbox_runs_the_command_that_comes", || {
        let sandbox = Box::shell("echo $GIVEN in $PWD; echo new > made")
            .with_network()
            .with(|spec| {
                spec.env.insert("GIVEN".into(), "this".into());
                spec.workdir = Some("/tmp".into());
            });
        let warm = Warm::build(&sandbox.spec).unwrap();
        assert_eq!(printed(warm, &sandbox).unwrap(), "this in /tmp\n");
        // It writes to its own layer, as any other.
        let sandbox = sandbox.with(|spec| spec.workdir = None);
        let warm = Warm::build(&sandbox.spec).unwrap();
        let place = sandbox.work().display().to_string();
        assert_eq!(
            printed(warm, &sandbox).unwrap(),
            format!("this in {place}\n")
        );
        assert!(sandbox.upper().join("made").exists());
    });
}

#[test]
fn the_clock_of_a_warm_sandbox_begins_with_its_command() {
    let sandbox = Box::shell("sleep 60").with(|spec| {
        spec.limits.wall = Some(std::time::Duration::from_millis(300));
    });
    let warm = Warm::build(&sandbox.spec).unwrap();
    let mut started = warm.dispatch(&sandbox.spec).unwrap();
    started.release().unwrap();
    let finished = started.wait(&mut |_, _| {});
    assert!(
        matches!(&finished.outcome, Outcome::Failed(Failure::Limit(hit)) if hit.which == Limit::Wall),
        "{finished:?}"
    );
}

#[test]
fn a_warm_sandbox_is_not_taken_for_another() {
    let build = || {
        let sandbox = Box::shell("true").file("conf/settings", "text");
        let warm = Warm::build(&sandbox.spec).unwrap();
        (warm, sandbox)
    };
    let (warm, sandbox) = build();
    assert!(warm.dispatch(&sandbox.spec).is_some());
    let (warm, sandbox) = build();
    let sandbox = sandbox.with(|spec| spec.limits.memory = Some(1 << 30));
    assert!(warm.dispatch(&sandbox.spec).is_none());
    let (warm, sandbox) = build();
    let sandbox = sandbox.with_network();
    assert!(warm.dispatch(&sandbox.spec).is_none());
    let (warm, sandbox) = build();
    let sandbox = sandbox.with(|spec| spec.view.mask.push("/var/tmp/other".into()));
    assert!(warm.dispatch(&sandbox.spec).is_none());
    let (warm, sandbox) = build();
    let sandbox = sandbox.with(|spec| spec.stdin = launcher::Stdin::Inherit);
    assert!(warm.dispatch(&sandbox.spec).is_none());
}

#[test]
fn what_must_be_hidden_by_now_is_not_shown_by_a_warm_sandbox() {
    let sandbox = Box::shell("cat .env");
    let warm = Warm::build(&sandbox.spec).unwrap();
    let sandbox = sandbox.file(".env", "KEY=test-secret-openai");
    assert!(warm.dispatch(&sandbox.spec).is_none());
    // The owner's file of a secret, which was not there when the sandbox was built.
    let sandbox = Box::shell("cat key");
    let key = sandbox.work().join("key");
    let sandbox = sandbox.with(|spec| spec.view.mask.push(key.clone()));
    let warm = Warm::build(&sandbox.spec).unwrap();
    std::fs::write(key, "test-secret-openai").unwrap();
    assert!(warm.dispatch(&sandbox.spec).is_none());
}

#[test]
fn a_warm_sandbox_that_is_not_needed_leaves_nothing() {
    let sandbox = Box::shell("true").with(|spec| spec.limits.processes = Some(64));
    let children = || {
        let path = format!("/proc/self/task/{}/children", rustix::thread::gettid());
        std::fs::read_to_string(path).unwrap()
    };
    drop(Warm::build(&sandbox.spec).unwrap());
    let before = children();
    drop(Warm::build(&sandbox.spec).unwrap());
    assert_eq!(children(), before);
}

#[test]
fn what_must_be_known_beforehand_is_refused() {
    let sandbox = Box::shell("true").with(|spec| spec.stdin = launcher::Stdin::Piped);
    assert!(Warm::build(&sandbox.spec).is_err());
}
