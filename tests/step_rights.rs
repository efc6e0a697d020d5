//! What may one step do that another may not? A step has less than its run where the policy says so, and its door holds it.

use sdk::api::RunStep;
use sdk::client::Client;
use sdk::report::Outcome;
use serde_json::{Value, json};

use crate::support::World;
use crate::support::origin::Origin;
use crate::support::process::{self, Finished};
use crate::support::serving::Serving;
use crate::support::world::greeting;

/// A source to fetch from and a registry to publish to, each with its own key and step; and a step without a network.
struct Release {
    world: World,
    source: Origin,
    registry: Origin,
    reader: String,
    writer: String,
}

const POLICY: &str = r#"
[[allow]]
host = "source.example"
secret = "reader"
[[allow]]
name = "registry"
host = "registry.example"
secret = "writer"
[steps.fetch]
allow = ["source.example"]
[steps.publish]
allow = ["registry"]
[steps.build]
network = "none"
"#;

impl Release {
    fn new() -> Self {
        let mut world = World::new();
        let source = world.origin("source.example", greeting());
        let registry = world.origin("registry.example", greeting());
        let binding = |host: &str| format!("hosts = [{host:?}]\ninject = \"bearer\"");
        let reader = world.secret("reader", &binding("source.example"));
        let writer = world.secret("writer", &binding("registry.example"));
        world.policy(POLICY);
        Self {
            world,
            source,
            registry,
            reader,
            writer,
        }
    }

    /// Runs one step of a file.
    fn step(&self, name: &str, shell: &str) -> Finished {
        let steps = format!("[[step]]\nname = {name:?}\nshell = {shell:?}\n");
        self.world.file("steps.toml", &steps);
        self.world
            .valetkey(&["run", "--json", "--steps", "steps.toml"])
    }

    fn events(&self, run: &str) -> Vec<Value> {
        let shown = self.world.valetkey(&["audit", "show", "--json", run]);
        shown.json()["events"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}

/// The token of the last request to a host.
fn bearer(origin: &Origin) -> String {
    origin
        .last()
        .field("authorization")
        .replacen("Bearer ", "", 1)
}

const FETCH: &str = "curl -sS https://source.example/a";
const PUBLISH: &str = "curl -sS -X PUT -d x https://registry.example/a";

#[test]
fn a_step_reaches_its_own_host_with_its_own_key_and_not_the_other() {
    let release = Release::new();
    let both = format!("{FETCH}; {PUBLISH}");
    let report = release.step("fetch", &both).json();
    assert_eq!(bearer(&release.source), release.reader);
    assert!(release.registry.seen().is_empty());
    let step = &report["steps"][0];
    let text = step["stdout"]["text"].as_str().unwrap();
    assert!(
        text.contains("hello") && text.contains("host-not-allowed"),
        "{text}"
    );
    assert_eq!(step["reached"][0]["host"], "source.example");
    assert_eq!(step["reached"][0]["secrets"], json!(["reader"]));
    // The other way round.
    release.step("publish", &both);
    assert_eq!(bearer(&release.registry), release.writer);
    assert_eq!(release.source.seen().len(), 1);
}

#[test]
fn a_step_is_given_placeholders_of_its_own_keys_only() {
    let release = Release::new();
    let report = release.step("fetch", "echo ${READER_TOKEN:+own} ${WRITER_TOKEN:+other}");
    assert_eq!(report.json()["steps"][0]["stdout"]["text"], "own\n");
    let report = release.step("check", "echo ${READER_TOKEN:+own} ${WRITER_TOKEN:+other}");
    assert_eq!(report.json()["steps"][0]["stdout"]["text"], "own other\n");
}

#[test]
fn a_step_that_is_not_named_and_a_command_that_is_no_step_have_the_runs_rights() {
    let release = Release::new();
    let both = format!("{FETCH} && {PUBLISH}");
    release.step("check", &both).exited(0);
    release.world.run(&["sh", "-c", &both]).passed();
    assert_eq!(release.source.seen().len(), 2);
    assert_eq!(release.registry.seen().len(), 2);
}

#[test]
fn a_step_without_a_network_has_no_way_out() {
    let release = Release::new();
    let probe = "python3 -c \"
import socket
for family, address in [(socket.AF_INET, ('127.0.0.1', 3128)), (socket.AF_INET, ('192.0.2.1', 443))]:
    try:
        socket.create_connection(address, 2); print('reached', address)
    except OSError as error: print('no')
\"; env | grep -ci proxy";
    let report = release
        .step(
            "build",
            &format!("{FETCH}; curl -sS --noproxy '*' https://source.example/; {probe}"),
        )
        .json();
    let text = report["steps"][0]["stdout"]["text"].as_str().unwrap();
    assert_eq!(text, "no\nno\n0\n");
    assert_eq!(release.source.connections(), 0);
    // The twin: the same is reached from a step that has a network.
    let report = release.step("fetch", FETCH).json();
    assert_eq!(report["steps"][0]["stdout"]["text"], "hello\n");
}

#[test]
fn programs_that_know_no_proxy_have_the_steps_rights_too() {
    let release = Release::new();
    let ask = "curl -sS --noproxy '*' https://source.example/; curl -sS --noproxy '*' https://registry.example/";
    let report = release.step("fetch", ask).json();
    let text = report["steps"][0]["stdout"]["text"].as_str().unwrap();
    assert!(
        text.contains("hello") && text.contains("host-not-allowed"),
        "{text}"
    );
    assert!(release.registry.seen().is_empty());
}

#[test]
fn what_each_step_reached_is_told_step_by_step() {
    let release = Release::new();
    let steps = format!(
        "[[step]]\nname = \"fetch\"\nshell = {FETCH:?}\n[[step]]\nname = \"publish\"\nshell = {:?}\n",
        format!("{PUBLISH}; {FETCH}")
    );
    release.world.file("steps.toml", &steps);
    let report = release
        .world
        .valetkey(&["run", "--json", "--steps", "steps.toml"])
        .json();
    let reached = |step: usize| report["steps"][step]["reached"].clone();
    assert_eq!(reached(0)[0]["host"], "source.example");
    assert_eq!(reached(0).as_array().unwrap().len(), 1);
    assert_eq!(reached(1)[0]["host"], "registry.example");
    assert_eq!(reached(1).as_array().unwrap().len(), 1);
    let events = std::fs::read_dir(release.world.path("state/audit")).unwrap();
    let log: String = events
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    let is_told = |step: &str, host: &str, event: &str| {
        log.lines().any(|line| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            line["step"] == step && line["request"]["host"] == host && line["event"] == event
        })
    };
    assert!(is_told("fetch", "source.example", "request.finished"));
    assert!(is_told("publish", "registry.example", "request.finished"));
    assert!(is_told("publish", "source.example", "request.denied"));
    assert!(!is_told("fetch", "registry.example", "request.denied"));
}

#[test]
fn what_a_step_may_do_can_be_asked_before_it_runs() {
    let release = Release::new();
    let check =
        |step: &str, request: &str| release.world.valetkey(&["check", "--step", step, request]);
    check("fetch", "GET https://source.example/")
        .exited(0)
        .says("allow");
    check("fetch", "GET https://registry.example/")
        .exited(3)
        .says("host-not-allowed");
    check("build", "GET https://source.example/").exited(3);
    check("fetsh", "GET https://registry.example/")
        .exited(0)
        .says("the policy gives `fetsh` no rights of its own");
    release
        .world
        .valetkey(&["policy", "explain"])
        .passed()
        .says("[steps.\"fetch\"]");
    release
        .world
        .valetkey(&["policy", "explain", "--step", "fetch"])
        .passed()
        .says("source.example")
        .says_nothing_of("registry.example");
}

/// A token for one step, at the door that all runs share.
fn with_token(release: &Release, serving: &Serving, step: &[&str], url: &str) -> (String, String) {
    let created = release
        .world
        .valetkey_unkept(&[&["runs", "create", "--json"], step].concat())
        .passed()
        .json();
    let mut curl = std::process::Command::new("curl");
    curl.args(["-sS", "-x", serving.proxy(), "--proxy-user"])
        .arg(format!("run:{}", created["token"].as_str().unwrap()))
        .arg("--cacert")
        .arg(created["ca_bundle"].as_str().unwrap())
        .arg(url);
    let finished = process::finish(curl, "");
    (created["run"].as_str().unwrap().to_owned(), finished.all())
}

#[test]
fn a_token_for_a_step_has_that_steps_rights_at_a_shared_door() {
    let release = Release::new();
    let serving = release.world.serve();
    let step = ["--step", "fetch"];
    let (_, told) = with_token(&release, &serving, &step, "https://source.example/");
    assert!(told.contains("hello"), "{told}");
    assert_eq!(bearer(&release.source), release.reader);
    let (run, told) = with_token(&release, &serving, &step, "https://registry.example/");
    assert!(told.contains("host-not-allowed"), "{told}");
    assert!(release.registry.seen().is_empty());
    assert!(!release.events(&run).is_empty());
}

#[test]
fn a_token_for_no_step_is_refused_at_a_shared_door_where_the_policy_has_steps() {
    let release = Release::new();
    let serving = release.world.serve();
    let (_, told) = with_token(&release, &serving, &[], "https://source.example/");
    assert!(told.contains("407"), "{told}");
    assert!(release.source.seen().is_empty());
    // The twin: a policy without steps.
    let plain = POLICY.split("[steps.").next().unwrap();
    release.world.policy(plain);
    let (_, told) = with_token(&release, &serving, &[], "https://source.example/");
    assert!(told.contains("hello"), "{told}");
}

/// A call of the control API, by curl.
fn call(release: &Release, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut curl = std::process::Command::new("curl");
    curl.args(["-sS", "-X", method, "-w", "\n%{http_code}", "--unix-socket"])
        .arg(release.world.path("state/control.sock"))
        .arg(format!("http://valetkey{path}"));
    if let Some(body) = body {
        curl.args([
            "-H",
            "content-type: application/json",
            "-d",
            &body.to_string(),
        ]);
    }
    let finished = process::finish(curl, "");
    let (text, status) = finished.stdout.rsplit_once('\n').unwrap();
    let answer = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    (status.parse().unwrap(), answer)
}

#[test]
fn an_agent_runs_step_by_step_and_decides_the_next_by_the_answer() {
    let release = Release::new();
    let serving = release.world.serve();
    let run = serving.create_run(&release.world).run;
    let path = format!("/v1/runs/{run}");
    let steps = format!("{path}/steps");
    let post = |body: Value| call(&release, "POST", &steps, Some(&body));
    let (status, step) =
        post(json!({"name": "fetch", "shell": format!("{FETCH} > got && {PUBLISH}")}));
    assert_eq!(status, 200, "{step}");
    assert_eq!(step["outcome"], "passed", "{step}");
    assert!(
        step["stdout"]["text"]
            .as_str()
            .unwrap()
            .contains("host-not-allowed")
    );
    assert_eq!(step["reached"][0]["host"], "source.example");
    // The next step sees what the one before wrote, and the owner's folder does not.
    let (_, step) = post(json!({"name": "build", "run": ["cat", "got"], "wall": "10s"}));
    assert_eq!(step["stdout"]["text"], "hello\n");
    assert!(!release.world.path("project/got").exists());
    let (_, step) = post(json!({"name": "publish", "shell": format!("{PUBLISH}; exit 4")}));
    assert_eq!(step["outcome"]["failed"]["exit"], 4);
    assert_eq!(bearer(&release.registry), release.writer);
    let (_, listed) = call(&release, "GET", &steps, None);
    let names: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|step| &step["name"])
        .collect();
    assert_eq!(names, ["fetch", "build", "publish"]);
    let (_, report) = call(&release, "GET", &format!("{path}/report"), None);
    assert_eq!(report["outcome"]["failed"]["exit"], 4);
    assert_eq!(report["reached"].as_array().unwrap().len(), 2);
    call(&release, "DELETE", &path, None);
    let (status, _) = post(json!({"name": "fetch", "run": ["true"]}));
    assert_eq!(status, 404);
    // What the steps wrote is the owner's to take.
    release
        .world
        .valetkey(&["changes", "show", &run])
        .passed()
        .says("got");
}

#[test]
fn the_next_steps_sandbox_is_built_beforehand_and_used_only_where_it_fits() {
    let release = Release::new();
    let serving = release.world.serve();
    let run = serving.create_run(&release.world).run;
    let path = format!("/v1/runs/{run}");
    let layers = release.world.path(&format!("state/runs/{run}/layers"));
    let post = |body: Value| {
        let (status, step) = call(&release, "POST", &format!("{path}/steps"), Some(&body));
        assert_eq!(
            (status, &step["outcome"]),
            (200, &json!("passed")),
            "{step}"
        );
    };
    post(json!({"name": "one", "shell": "echo > first"}));
    // Each sandbox has its layer: the next step's is there before the step.
    until(|| layers.join("002").exists());
    post(json!({"name": "two", "shell": "cat first && echo > second"}));
    until(|| layers.join("003").exists());
    // With another limit it is another sandbox, over a layer of its own.
    post(json!({"name": "three", "shell": "cat second && echo > third", "memory": "700MiB"}));
    until(|| layers.join("005").exists());
    call(&release, "DELETE", &path, None);
    until(|| !layers.join("005").exists());
    let mut kept: Vec<_> = std::fs::read_dir(&layers)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    kept.sort();
    assert_eq!(kept, ["001", "002", "004"]);
    release
        .world
        .valetkey(&["changes", "show", &run])
        .passed()
        .says("first")
        .says("second")
        .says("third");
}

#[test]
fn a_run_whose_first_layers_are_merged_keeps_what_each_step_did() {
    let release = Release::new();
    release.world.file("old/kept", "kept\n");
    release.world.file("old/gone", "gone\n");
    let serving = release.world.serve();
    let run = serving.create_run(&release.world).run;
    let id = run.parse().unwrap();
    let client = Client::new(&release.world.path("state/control.sock"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let step = |shell: String| RunStep {
        name: "fetch".to_owned(),
        shell: Some(shell),
        ..RunStep::default()
    };
    runtime.block_on(async {
        for number in 1..=MANY {
            let before = number - 1;
            let first = if number == 1 { "touch all new-0; mkdir -p d/0;" } else { "" };
            let then = match number {
                3 => "rm -r old; mkdir old; echo new > old/new; chmod 751 old",
                // What a failed step leaves is seen by the next one.
                7 => "echo left > left; exit 1",
                _ => "true",
            };
            let shell = format!(
                "set -e; {first} test $(wc -l < all) = {before}; echo {number} >> all; \
                 echo {number} > new-{number}; rm new-{before}; mkdir d/{number}; rmdir d/{before}; {then}"
            );
            let ended = client.run_step(&id, &step(shell)).await.unwrap();
            assert_eq!(ended.outcome == Outcome::Passed, number != 7, "{ended:?}");
        }
        let look = "ls; ls old d; cat left; wc -l < all; stat -c %a old".to_owned();
        let seen = client.run_step(&id, &step(look)).await.unwrap();
        let expected = format!(
            "all\nd\nleft\nnew-{MANY}\nold\nvaletkey.toml\nd:\n{MANY}\n\nold:\nnew\nleft\n{MANY}\n751\n"
        );
        assert_eq!(seen.stdout.text, expected);
        client.revoke(&id).await.unwrap();
    });
    let layers = release.world.path(&format!("state/runs/{run}/layers"));
    let count = std::fs::read_dir(&layers).unwrap().count();
    assert!(count < 20, "{count}");
    // Until the server has let go of them.
    until(|| {
        let applied = release.world.valetkey(&["changes", "apply", &run]);
        applied.stderr.is_empty()
    });
    let project = |path: &str| release.world.path("project").join(path);
    assert!(!project("old/kept").exists() && project("old/new").exists());
    assert!(project(&format!("d/{MANY}")).exists() && !project("d/1").exists());
    let all = std::fs::read_to_string(project("all")).unwrap();
    assert_eq!(all.lines().count() as u32, MANY);
}

/// So many that layers are merged twice.
const MANY: u32 = 32;

/// Waits for what a process does by itself soon.
fn until(is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it did not come about");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_wrong_with_a_step_that_is_asked_for_is_told() {
    let release = Release::new();
    let serving = release.world.serve();
    let run = serving.create_run(&release.world).run;
    let steps = format!("/v1/runs/{run}/steps");
    for (body, expected) in [
        (json!({"name": "fetch"}), "nothing to run"),
        (json!({"name": "../x", "run": ["true"]}), "name of a step"),
        (
            json!({"name": "fetch", "run": ["true"], "walls": "1s"}),
            "walls",
        ),
        (
            json!({"name": "fetch", "run": ["true"], "wall": "9h"}),
            "more than the policy's limit",
        ),
        (
            json!({"name": "fetch", "run": ["true"], "needs": ["x"]}),
            "for the steps of a file",
        ),
        (json!(["fetch"]), "must be a table"),
    ] {
        let (status, problem) = call(&release, "POST", &steps, Some(&body));
        assert_eq!(status, 422, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "{detail}");
    }
    let (_, listed) = call(&release, "GET", &steps, None);
    assert_eq!(listed, json!([]));
}

#[test]
fn a_step_of_the_api_that_failed_can_have_its_changes_dropped() {
    let release = Release::new();
    let serving = release.world.serve();
    let run = serving.create_run(&release.world).run.parse().unwrap();
    let client = Client::new(&release.world.path("state/control.sock"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let step = |shell: &str, rollback_failed: bool| RunStep {
        name: "fetch".to_owned(),
        shell: Some(shell.to_owned()),
        rollback_failed,
        ..RunStep::default()
    };
    runtime.block_on(async {
        let run_step = async |shell: &str, drops: bool| {
            client.run_step(&run, &step(shell, drops)).await.unwrap()
        };
        let dropped = run_step("echo 1 > one; exit 1", true).await;
        assert!(dropped.rolled_back);
        assert!(!run_step("echo 2 > two; exit 1", false).await.rolled_back);
        let last = run_step("test ! -e one && cat two && echo 3 > three", true).await;
        assert_eq!(last.outcome, Outcome::Passed);
        assert!(!last.rolled_back);
        client.revoke(&run).await.unwrap();
    });
}

#[test]
fn what_happens_in_a_run_is_followed_as_it_happens() {
    let release = Release::new();
    let serving = release.world.serve();
    let run = serving.create_run(&release.world).run.parse().unwrap();
    let client = Client::new(&release.world.path("state/control.sock"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let told = runtime.block_on(async {
        let mut events = client.events(&run, None).await.unwrap();
        let asked = RunStep {
            name: "fetch".to_owned(),
            shell: Some(FETCH.to_owned()),
            ..RunStep::default()
        };
        let step = client.run_step(&run, &asked).await.unwrap();
        assert_eq!(step.outcome, Outcome::Passed);
        assert_eq!(client.steps(&run).await.unwrap()[0].report, Some(step));
        assert_eq!(client.report(&run).await.unwrap().steps.len(), 1);
        client.revoke(&run).await.unwrap();
        let mut told = Vec::new();
        while let Some(event) = events.next().await.unwrap() {
            told.push(event);
        }
        told
    });
    let kinds: Vec<&str> = told.iter().map(|event| event.kind.as_str()).collect();
    let place = |kind: &str| kinds.iter().position(|other| *other == kind).expect(kind);
    assert!(place("started") < place("request") && place("request") < place("ended"));
    assert!(place("output") < place("ended") && place("ended") < place("run.ended"));
    let text = format!("{told:?}");
    assert!(
        text.contains("source.example") && text.contains("hello"),
        "{text}"
    );
    assert!(!text.contains(&release.reader), "{text}");
    assert_eq!(told[0].number, Some(0));
}

#[test]
fn a_token_of_one_step_is_refused_at_the_door_of_another() {
    let release = Release::new();
    let serving = release.world.serve();
    let created = release
        .world
        .valetkey_unkept(&["runs", "create", "--json", "--step", "fetch"])
        .passed()
        .json();
    let (run, token) = (
        created["run"].as_str().unwrap(),
        created["token"].as_str().unwrap(),
    );
    let ask = |step: &str| {
        let shell = format!(
            "curl -sS -v --proxy-user run:{token} https://registry.example/ 2>&1 | grep -o 'wrong-door' | head -1"
        );
        let body = json!({"name": step, "shell": shell});
        let (status, answer) = call(
            &release,
            "POST",
            &format!("/v1/runs/{run}/steps"),
            Some(&body),
        );
        assert_eq!(status, 200, "{answer}");
        answer["stdout"]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask("publish"), "wrong-door\n");
    assert!(release.registry.seen().is_empty());
    // The twin: at the door of its own step it is let in, and judged.
    assert_eq!(ask("fetch"), "");
    let refused = release.events(run);
    let is_wrong_door = |event: &Value| event["code"] == "wrong-door";
    assert!(refused.iter().any(is_wrong_door), "{refused:?}");
    drop(serving);
}
