//! What the broker's part of each request costs: the token known and unknown, the credential, the search for placeholders.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;

use broker::{Broker, CreateRunSpec, NewRun, Settings};
use criterion::{Criterion, criterion_group, criterion_main};
use policies::load::{Document, Origin, Sources, load};
use policies::{Host, Scheme};
use tokio::runtime::Runtime;

struct Nothing;

impl Sources for Nothing {
    fn document(&mut self, _from: &str, path: &str) -> Result<Document, String> {
        Err(path.to_owned())
    }

    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String> {
        Err(preset.to_owned())
    }
}

struct Bench {
    runtime: Runtime,
    broker: Arc<Broker>,
    new: NewRun,
    _folder: tempfile::TempDir,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["config", "state", "project"] {
        std::fs::create_dir(at(name)).unwrap();
        private(&at(name), 0o700);
    }
    std::fs::write(at("key"), "bench-secret-0123456789abcdef").unwrap();
    let entry = format!(
        "[bench]\nhosts = [\"api.bench.example\"]\ninject = \"bearer\"\nsource = {{ file = {:?} }}\n",
        at("key")
    );
    std::fs::write(at("config/secrets.toml"), entry).unwrap();
    private(&at("config/secrets.toml"), 0o600);
    let text = "version = 1\n[[allow]]\nhost = \"api.bench.example\"\nsecret = \"bench\"\n";
    let document = Document {
        name: "valetkey.toml".to_owned(),
        text: text.to_owned(),
    };
    let policy = load(document, &mut Nothing).unwrap_or_else(|problems| panic!("{}", problems[0]));
    let runtime = Runtime::new().unwrap();
    let (broker, new) = runtime.block_on(async {
        let broker = Broker::open(Settings {
            state_dir: at("state"),
            config_dir: at("config"),
            durability: None,
        })
        .unwrap();
        let spec = CreateRunSpec {
            approved: Some(*policy.digest()),
            policy: Arc::new(policy),
            project: at("project"),
            ttl: None,
            step: None,
        };
        let new = broker.create_run(spec).await.unwrap();
        (broker, new)
    });
    Bench {
        runtime,
        broker,
        new,
        _folder: folder,
    }
}

fn private(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn tokens(criterion: &mut Criterion) {
    let bench = bench();
    let token = bench.new.token.danger_expose().as_bytes();
    let alias = bench.new.alias.danger_expose().as_bytes();
    let mut forged = token.to_vec();
    let last = forged.len() - 2;
    forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
    let mut group = criterion.benchmark_group("token");
    group.bench_function("known", |bencher| {
        bencher.iter(|| black_box(bench.broker.authenticate(black_box(token)).is_ok()));
    });
    group.bench_function("alias", |bencher| {
        bencher.iter(|| black_box(bench.broker.authenticate(black_box(alias)).is_ok()));
    });
    // Never remembered, so its signature is verified each time.
    group.bench_function("forged", |bencher| {
        bencher.iter(|| black_box(bench.broker.authenticate(black_box(&forged)).is_err()));
    });
    group.finish();
}

fn injection(criterion: &mut Criterion) {
    let bench = bench();
    let run = &bench.new.run;
    let host = Host::parse("api.bench.example").unwrap();
    let mut group = criterion.benchmark_group("inject");
    group.bench_function("credential", |bencher| {
        bencher.iter(|| {
            let released =
                bench
                    .broker
                    .credential(run, &run.grants()[0], Scheme::Https, &host, 443);
            black_box(bench.runtime.block_on(released).is_ok())
        });
    });
    let field = format!("Bearer {}", "x".repeat(200));
    group.bench_function("tripwire", |bencher| {
        bencher.iter(|| black_box(run.tripwire().find(black_box(field.as_bytes())).is_none()));
    });
    group.finish();
}

criterion_group!(benches, tokens, injection);
criterion_main!(benches);
