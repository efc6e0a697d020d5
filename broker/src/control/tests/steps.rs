//! What callers of the control API see of steps.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use hyper::body::Incoming;
use sdk::happening::{Happening, Output, Started};
use sdk::report::Step;

use super::*;

/// Runs nothing: a step ends as its name says, and one called `held` when it is let go.
struct Pretence {
    held: Mutex<Option<Receiver<()>>>,
    audit: PathBuf,
}

struct Pretended {
    name: String,
    audit: PathBuf,
    held: Option<Receiver<()>>,
}

impl StepRunner for Pretence {
    fn read(&self, _: &Arc<Run>, asked: &str) -> Result<Box<dyn ReadyStep>, StepRefused> {
        let asked: Value =
            serde_json::from_str(asked).map_err(|error| StepRefused::Wrong(error.to_string()))?;
        let name = asked["name"].as_str();
        let name = name.ok_or_else(|| StepRefused::Wrong("`name` is missing".to_owned()))?;
        Ok(Box::new(Pretended {
            name: name.to_owned(),
            audit: self.audit.clone(),
            held: (name == "held")
                .then(|| self.held.lock().unwrap().take())
                .flatten(),
        }))
    }
}

impl ReadyStep for Pretended {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(self: Box<Self>, index: u32, listener: &dyn StepListener) -> Result<Step, StepRefused> {
        listener.happened(&Happening::Started(Started {
            step: self.name.clone(),
            index,
            attempt: 1,
        }));
        for (stream, text) in [("stdout", "said "), ("stderr", &*self.name)] {
            listener.happened(&Happening::Output(Output {
                step: self.name.clone(),
                index,
                stream: stream.to_owned(),
                text: text.to_owned(),
                base64: None,
            }));
        }
        if let Some(held) = &self.held {
            held.recv().unwrap();
        }
        let outcome = match self.name.as_str() {
            "broken" => return Err(StepRefused::Cannot("no sandbox here".to_owned())),
            "panics" => panic!("as asked"),
            "unread" => {
                let aside = self.audit.with_extension("aside");
                std::fs::rename(&self.audit, aside).unwrap();
                std::fs::write(&self.audit, "no folder").unwrap();
                json!("passed")
            }
            "bad" => json!({"failed": {"exit": 3}}),
            _ => json!("passed"),
        };
        let tail = json!({"text": "", "truncated": false, "bytes": 0});
        Ok(serde_json::from_value(json!({
            "name": self.name, "index": index, "outcome": outcome, "limits_hit": [], "attempts": 1,
            "wall_ms": 1, "stdout": tail, "stderr": tail, "reached": [],
        }))
        .unwrap())
    }
}

/// A server that pretends, and what lets a step called `held` go.
async fn pretending() -> (Served, Sender<()>) {
    let (sender, receiver) = channel();
    let world = World::new();
    let runner = Pretence {
        held: Mutex::new(Some(receiver)),
        audit: world.path().join("state/audit"),
    };
    let served = Served::with(world, Some(Arc::new(runner))).await;
    (served, sender)
}

impl Served {
    async fn step(&self, path: &str, name: &str) -> (u16, Value) {
        let path = format!("{path}/steps");
        self.call(Method::POST, &path, Some(json!({"name": name})))
            .await
    }

    async fn run(&self) -> String {
        let created = self.create().await;
        format!("/v1/runs/{}", created["run"].as_str().unwrap())
    }

    /// Begins to follow a run; nobody can once it has ended.
    async fn follow(&self, path: &str, after: Option<u64>) -> (u16, Incoming) {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder()
            .uri(format!("{path}/events"))
            .header("host", "valetkey");
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let response = sender.send_request(request).await.unwrap();
        (response.status().as_u16(), response.into_body())
    }
}

/// Everything that is told until the run has ended.
async fn all(body: Incoming) -> String {
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits until something holds of a step.
async fn until(served: &Served, path: &str, place: usize, state: &str) {
    loop {
        let (_, steps) = served
            .call(Method::GET, &format!("{path}/steps"), None)
            .await;
        if steps[place]["state"] == state {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_run_listed_and_reported() {
    let (served, _) = pretending().await;
    let path = served.run().await;
    let (status, step) = served.step(&path, "fetch").await;
    assert_eq!((status, &step["index"]), (200, &json!(1)), "{step}");
    let (_, step) = served.step(&path, "bad").await;
    assert_eq!(step["outcome"]["failed"]["exit"], 3);
    for end in ["", "after the end"] {
        let (_, steps) = served
            .call(Method::GET, &format!("{path}/steps"), None)
            .await;
        assert_eq!(steps[0]["name"], "fetch", "{end}");
        assert_eq!(steps[1]["report"]["outcome"]["failed"]["exit"], 3, "{end}");
        let (_, report) = served
            .call(Method::GET, &format!("{path}/report"), None)
            .await;
        assert_eq!(report["steps"][0]["outcome"], "passed", "{end}");
        assert_eq!(report["outcome"]["failed"]["exit"], 3, "{end}");
        let state = if end.is_empty() { "active" } else { "ended" };
        assert_eq!(report["state"], state);
        served.call(Method::DELETE, &path, None).await;
    }
    let (status, _) = served.step(&path, "fetch").await;
    assert_eq!(status, 404, "the run has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_have_hundreds_of_steps_and_then_no_more() {
    let (served, _) = pretending().await;
    let path = served.run().await;
    for number in 1..=500 {
        let (status, step) = served.step(&path, "fetch").await;
        assert_eq!((status, &step["index"]), (200, &json!(number)), "{step}");
    }
    let (status, problem) = served.step(&path, "fetch").await;
    assert_eq!(status, 409);
    assert!(
        problem["detail"].as_str().unwrap().contains("500"),
        "{problem}"
    );
    let (_, report) = served
        .call(Method::GET, &format!("{path}/report"), None)
        .await;
    assert_eq!(report["steps"].as_array().unwrap().len(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_is_told_in_order_to_those_who_come_late_too() {
    let (served, _) = pretending().await;
    let path = served.run().await;
    served.step(&path, "fetch").await;
    served.step(&path, "broken").await;
    let (status, body) = served.follow(&path, None).await;
    assert_eq!(status, 200);
    let (text, _) = tokio::join!(all(body), served.call(Method::DELETE, &path, None));
    let kinds: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    let expected = [
        "started",
        "output",
        "output",
        "ended",
        "started",
        "output",
        "output",
        "ended",
        "run.ended",
    ];
    assert_eq!(kinds, expected, "{text}");
    assert!(
        text.contains(r#""stream":"stdout","text":"said "#),
        "{text}"
    );
    assert!(text.contains("no sandbox here"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_comes_back_goes_on_where_it_was() {
    let (served, _) = pretending().await;
    let path = served.run().await;
    served.step(&path, "fetch").await;
    let (_, body) = served.follow(&path, Some(2)).await;
    let (text, _) = tokio::join!(all(body), served.call(Method::DELETE, &path, None));
    assert!(text.starts_with("id: 3\nevent: ended\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_ran_is_reported_whatever_fails_after_it() {
    let (served, _) = pretending().await;
    let path = served.run().await;
    let (status, step) = served.step(&path, "panics").await;
    assert_eq!(status, 200, "{step}");
    assert!(
        step["outcome"]["failed"]["setup-failed"].is_string(),
        "{step}"
    );
    let (_, follower) = served.follow(&path, None).await;
    let (status, step) = served.step(&path, "unread").await;
    assert_eq!(
        (status, &step["outcome"]),
        (200, &json!("passed")),
        "{step}"
    );
    let (_, steps) = served
        .call(Method::GET, &format!("{path}/steps"), None)
        .await;
    assert_eq!(steps[1]["report"]["outcome"], "passed", "{steps}");
    // The twin: one that did not begin is refused.
    let (status, refused) = served.step(&path, "late").await;
    assert_eq!(status, 503, "{refused}");
    served.call(Method::DELETE, &path, None).await;
    let told = all(follower).await;
    assert!(
        told.contains("what it reached cannot be told now"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_a_run_wait_for_their_turn_and_only_so_many_do() {
    let (served, held) = pretending().await;
    let served = Arc::new(served);
    let path = served.run().await;
    let ask = |name: &'static str| {
        let (served, path) = (Arc::clone(&served), path.clone());
        tokio::spawn(async move { served.step(&path, name).await.0 })
    };
    let first = ask("held");
    until(&served, &path, 0, "running").await;
    let mut waiting = Vec::new();
    for place in 1..=8 {
        waiting.push(ask("next"));
        until(&served, &path, place, "waiting").await;
    }
    let (status, problem) = served.step(&path, "next").await;
    assert_eq!(status, 409, "{problem}");
    held.send(()).unwrap();
    assert_eq!(first.await.unwrap(), 200);
    for step in waiting {
        assert_eq!(step.await.unwrap(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_caller_went_away_is_finished_and_kept() {
    let (served, held) = pretending().await;
    let served = Arc::new(served);
    let path = served.run().await;
    let (asking, name) = (Arc::clone(&served), path.clone());
    let caller = tokio::spawn(async move { asking.step(&name, "held").await });
    until(&served, &path, 0, "running").await;
    caller.abort();
    held.send(()).unwrap();
    until(&served, &path, 0, "ended").await;
    let (_, steps) = served
        .call(Method::GET, &format!("{path}/steps"), None)
        .await;
    assert_eq!(steps[0]["report"]["outcome"], "passed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_up_nobody() {
    let (served, _) = pretending().await;
    let path = served.run().await;
    // It asks, and never reads.
    let mut silent = UnixStream::connect(&served.socket).await.unwrap();
    let asked = format!("GET {path}/events HTTP/1.1\r\nHost: valetkey\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut silent, asked.as_bytes())
        .await
        .unwrap();
    for _ in 0..20 {
        assert_eq!(served.step(&path, "fetch").await.0, 200);
    }
    let (status, _) = served.call(Method::DELETE, &path, None).await;
    assert_eq!(status, 200);
    served.shutdown.cancel();
    served.server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_step_is_told_as_a_problem() {
    let (served, _) = pretending().await;
    let path = served.run().await;
    let steps = format!("{path}/steps");
    let (status, problem) = served
        .call(Method::POST, &steps, Some(json!({"nam": "x"})))
        .await;
    assert_eq!(
        (status, &problem["detail"]),
        (422, &json!("`name` is missing"))
    );
    let (status, _) = served.step(&path, "broken").await;
    assert_eq!(status, 503);
    let (status, _) = served
        .send(Method::POST, &steps, "{}".to_owned(), "text/plain")
        .await;
    assert_eq!(status, 415);
    let large = "x".repeat(70_000);
    let (status, _) = served
        .send(Method::POST, &steps, large, "application/json")
        .await;
    assert_eq!(status, 413);
    for path in ["/v1/runs/run_0000000000000000000", "/v1/runs/x"] {
        for (method, end) in [
            (Method::POST, "steps"),
            (Method::GET, "steps"),
            (Method::GET, "events"),
            (Method::GET, "report"),
        ] {
            let body = (method == Method::POST).then(|| json!({"name": "x"}));
            let path = format!("{path}/{end}");
            assert_eq!(served.call(method, &path, body).await.0, 404, "{path}");
        }
    }
    // A server that was given nothing to run steps with says so.
    let served = Served::new().await;
    let path = served.run().await;
    let (status, problem) = served.step(&path, "fetch").await;
    assert_eq!(status, 501, "{problem}");
}
