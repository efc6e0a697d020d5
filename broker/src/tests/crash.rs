//! What is left when processes are killed, and what many of them do at once.
//!
//! The processes are this test binary itself, asked for one test by name, with a folder given in the environment.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;

/// Names the folder of the installation to a process that a test started.
const FOLDER: &str = "VALETKEY_TEST_FOLDER";

pub(super) fn start(test: &str, world: &World) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("tests::{test}"),
            "--nocapture",
            "--include-ignored",
        ])
        .env(FOLDER, world.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub(super) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn spec(folder: &Path) -> CreateRunSpec {
    let policy = Arc::new(Policy::default_for_no_file());
    CreateRunSpec {
        approved: Some(*policy.digest()),
        policy,
        project: folder.join("project"),
        ttl: Some(Duration::from_secs(600)),
        step: None,
    }
}

/// Creates a run, says so, and writes to the log until it is killed.
#[tokio::test]
#[ignore = "a process that a test starts and kills"]
#[expect(clippy::print_stdout, reason = "it is how the test hears of it")]
async fn writes_for_ever() {
    use sdk::audit::{Event, EventKind};
    let Some(folder) = folder() else {
        return;
    };
    let broker = Broker::open(settings(&folder)).unwrap();
    let new = broker.create_run(spec(&folder)).await.unwrap();
    let mut event = Event::new(EventKind::RequestStarted);
    event.run = Some(new.run.id().clone());
    let mut written: u64 = 0;
    loop {
        broker.audit().append(&event).await.unwrap();
        written += 1;
        println!("\nwritten {written} {}", new.run.id());
    }
}

/// Begins one segment after another until it is killed.
#[tokio::test]
#[ignore = "a process that a test starts and kills"]
#[expect(clippy::print_stdout, reason = "it is how the test hears of it")]
async fn begins_for_ever() {
    let Some(folder) = folder() else {
        return;
    };
    for begun in 1.. {
        let broker = Broker::open(settings(&folder)).unwrap();
        let new = broker.create_run(spec(&folder)).await.unwrap();
        println!("\nwritten {begun} {}", new.run.id());
    }
}

/// Creates a run and ends it.
#[tokio::test]
#[ignore = "a process that a test starts"]
async fn comes_and_goes() {
    let Some(folder) = folder() else {
        return;
    };
    let broker = Broker::open(settings(&folder)).unwrap();
    let new = broker.create_run(spec(&folder)).await.unwrap();
    assert!(
        broker
            .authenticate(new.token.danger_expose().as_bytes())
            .is_ok()
    );
    broker.end_run(&new.run).unwrap();
    broker.audit().flush().await.unwrap();
}

/// Lets a writer get on, kills it, and returns how many lines it knew to be written, and its run.
fn kill_a_writer(world: &World, test: &str, lines: usize) -> (u64, String) {
    let mut child = start(&format!("crash::{test}"), world);
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut told = output
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("written ").map(str::to_owned));
    let last = told.by_ref().nth(lines).unwrap();
    child.kill().unwrap();
    // What it had said before it died counts as well.
    let last = told.last().unwrap_or(last);
    child.wait().unwrap();
    let (count, run) = last.split_once(' ').unwrap();
    (count.parse().unwrap(), run.to_owned())
}

#[tokio::test]
async fn no_line_that_was_answered_for_is_lost_when_the_process_is_killed() {
    let world = World::new();
    for lines in [0, 7, 300] {
        let (count, run) = kill_a_writer(&world, "writes_for_ever", lines);
        let broker = world.broker();
        let verification = broker.verify_audit().unwrap();
        assert_eq!(verification.findings, []);
        let id = run.parse().unwrap();
        let events = broker.events(&id).unwrap();
        // Its creation, its token, and what it did; perhaps one more that it could not tell of.
        assert!(events.len() as u64 >= count + 2);
        // Its run died with it.
        assert_eq!(broker.run_info(&id).unwrap().unwrap().state, "ended");
    }
}

#[tokio::test]
async fn a_process_killed_while_it_moves_the_logs_key_on_leaves_a_log_that_is_whole() {
    let world = World::new();
    for lines in 0..8 {
        let (_, run) = kill_a_writer(&world, "begins_for_ever", lines);
        let broker = world.broker();
        let verification = broker.verify_audit().unwrap();
        assert_eq!(verification.findings, []);
        // Each segment that was closed in order has a MAC that follows from the first key.
        assert!(verification.has_verification_key && verification.checkpoints >= lines as u64);
        assert!(broker.events(&run.parse().unwrap()).unwrap().len() >= 2);
        world.run(&broker).await.unwrap();
    }
}

#[tokio::test]
async fn many_processes_share_one_new_state_folder() {
    let world = World::new();
    let children: Vec<Child> = (0..20)
        .map(|_| start("crash::comes_and_goes", &world))
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let broker = world.broker();
    let runs = broker.runs().unwrap();
    assert_eq!(runs.len(), 20);
    assert!(runs.iter().all(|run| run.state == "ended"));
    let verification = broker.verify_audit().unwrap();
    assert_eq!(verification.findings, []);
    assert_eq!(verification.segments, 20);
}
