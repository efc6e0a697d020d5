//! How a sandbox without namespaces comes to be, and to an end before its command.

use launcher::{Error, Isolation, prepare};
use sdk::report::Outcome;

use crate::fallback::{landlocked, where_namespaces_are_refused};
use crate::support::Box;

#[test]
fn namespaces_are_not_replaced_by_something_weaker_unasked() {
    where_namespaces_are_refused(
        "refused::namespaces_are_not_replaced_by_something_weaker_unasked",
        || {
            let sandbox = Box::shell("echo ran > ran");
            let error = prepare(&sandbox.spec)
                .and_then(|prepared| prepared.start())
                .unwrap_err();
            assert!(matches!(error, Error::Machine { .. }), "{error}");
            assert!(!sandbox.upper().join("ran").exists());
            // Asked for, the next best is taken, and what it leaves open is said.
            let sandbox = sandbox.with(|spec| spec.isolation = Isolation::Either);
            let prepared = prepare(&sandbox.spec).unwrap();
            assert!(!prepared.not_isolated().is_empty());
            assert!(prepared.notes()[0].contains("namespaces are refused here"));
            sandbox.output();
        },
    );
}

#[test]
fn a_sandbox_that_was_not_released_ends_when_it_is_told_to() {
    where_namespaces_are_refused(
        "refused::a_sandbox_that_was_not_released_ends_when_it_is_told_to",
        || {
            let sandbox = landlocked("echo ran > ran");
            drop(sandbox.start());
            let started = sandbox.start();
            started.killer().kill();
            drop(started);
            let finished = sandbox.start().wait(&mut |_, _| {});
            assert_ne!(finished.outcome, Outcome::Passed);
            assert!(!sandbox.upper().join("ran").exists());
        },
    );
}
