//! What a decision costs, with 10 hosts in the policy and with 100,000: the two should be within a fifth of each other.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use policies::load::{Document, Origin, Sources, load};
use policies::{Host, NoFields, Policy, Request, RequestPath, Scheme};

struct Nothing;

impl Sources for Nothing {
    fn document(&mut self, _from: &str, path: &str) -> Result<Document, String> {
        Err(path.to_owned())
    }

    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String> {
        Err(preset.to_owned())
    }
}

fn policy(hosts: usize) -> Policy {
    let mut text = "version = 1\n".to_owned();
    for number in 0..hosts {
        let _ = writeln!(
            text,
            "[[allow]]\nhost = \"api{number}.example\"\npaths = [\"/v1/**\"]\n[[allow]]\nhost = \"*.zone{number}.example\""
        );
    }
    let document = Document {
        name: "valetkey.toml".to_owned(),
        text,
    };
    load(document, &mut Nothing).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for hosts in [10, 100_000] {
        let policy = policy(hosts);
        for (case, host) in [
            ("exact", "api7.example"),
            ("wildcard", "a.b.zone7.example"),
            ("refused", "evil.example"),
        ] {
            let host = Host::parse(host).unwrap();
            let target = RequestPath::parse("/v1/orders/7?tenant=acme").unwrap();
            let request = Request {
                scheme: Scheme::Https,
                host: &host,
                port: 443,
                method: "GET",
                target: &target,
                headers: &NoFields,
                upgrade: false,
            };
            group.bench_function(BenchmarkId::new(case, hosts), |bencher| {
                bencher.iter(|| black_box(policy.decide(black_box(&request))));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
