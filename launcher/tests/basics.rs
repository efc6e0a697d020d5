//! Does a command run, and does it end as it says it did?

use sdk::report::{Failure, Outcome};

use crate::support::{Box, as_each_user};

#[test]
fn a_command_runs_and_its_output_comes_back() {
    as_each_user("basics::a_command_runs_and_its_output_comes_back", || {
        let sandbox = Box::shell(
            "echo hello; id -u; pwd; ls -la / /etc /dev ~ ; cat /proc/self/mountinfo; env; ls -la .",
        );
        let finished = sandbox.run();
        println!("{}\n{}", finished.stdout.text, finished.stderr.text);
        println!("{:?}", finished);
        assert_eq!(finished.outcome, Outcome::Passed);
    });
}

#[test]
fn an_exit_code_is_kept() {
    let finished = Box::shell("exit 7").run();
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(7)));
}
