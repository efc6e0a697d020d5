//! Runs the same load through each proxy, round after round, and prints what each costs in processor time.
//!
//! Usage: `side-by-side VALETKEY [SECONDS] [ROUNDS] [PEER…]`; without peers all of them.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::authority::Authority;
use bench::peer::{self, HOST, Peer, Setting};
use bench::{cpu, load, origin};

/// What one measure gave: units of work per second of the proxy's processor time.
type Rates = BTreeMap<(&'static str, String), Vec<f64>>;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let binary = arguments
        .next()
        .ok_or_else(|| io::Error::other("give the path of valetkey"))?;
    // Each proxy starts in a folder of its own.
    let binary = PathBuf::from(binary).canonicalize()?;
    let seconds = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(5);
    let rounds = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    let time = Duration::from_secs(seconds);

    let wanted: Vec<String> = arguments.collect();

    let folder = tempfile::tempdir()?;
    let (roots, signer) = (Authority::new("origin"), Authority::new("proxy"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let origin = origin::start(
        runtime.handle(),
        roots.server(&[HOST, "localhost"], &["h2", "http/1.1"]),
    )?;
    let setting = Setting {
        folder: folder.path(),
        origin,
        roots: &roots,
        signer: &signer,
        processor: 0,
    };
    let peers = start(&setting, &binary, &wanted);
    let mut rates = Rates::new();
    for round in 1..=rounds {
        for peer in &peers {
            println!("round {round}: {}", peer.name);
            if let Err(error) = runtime.block_on(measure(peer, time, &mut rates)) {
                println!("  {}: {error}", peer.name);
            }
        }
    }
    print(&rates, &peers);
    Ok(())
}

fn start(setting: &Setting<'_>, binary: &Path, wanted: &[String]) -> Vec<Peer> {
    let all = ["valetkey", "squid", "mitmproxy"];
    let chosen = all
        .into_iter()
        .filter(|name| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name));
    let started = chosen.filter_map(|name| {
        let peer = match name {
            "valetkey" => peer::valetkey(setting, binary),
            "squid" => peer::squid(setting),
            _ => peer::mitmproxy(setting),
        };
        peer.inspect_err(|error| println!("{name} did not start: {error}"))
            .ok()
    });
    started.collect()
}

async fn measure(peer: &Peer, time: Duration, rates: &mut Rates) -> io::Result<()> {
    // Connections, certificates and code paths are warm before anything counts.
    load::keep_alive(&peer.path, 64, Duration::from_secs(1)).await?;
    let mut note = |what, work: f64, used: Duration| {
        let rate = work / used.as_secs_f64().max(0.01);
        println!("  {what}: {rate:.0}");
        rates
            .entry((what, peer.name.clone()))
            .or_default()
            .push(rate);
    };
    let before = cpu::of_tree(peer.pid());
    let done = load::keep_alive(&peer.path, 64, time).await?;
    let after = cpu::of_tree(peer.pid());
    note(KEPT, done.requests as f64, after - before);
    let done = load::new_connections(&peer.path, 8, time).await?;
    let then = cpu::of_tree(peer.pid());
    note(NEW, done.requests as f64, then - after);
    load::stream(&peer.path, STREAMED).await?;
    note(STREAM, STREAMED as f64, cpu::of_tree(peer.pid()) - then);
    Ok(())
}

fn print(rates: &Rates, peers: &[Peer]) {
    println!(
        "\nper second of the proxy's processor time, median of the rounds; in brackets: valetkey's is so many times that"
    );
    for what in [KEPT, NEW, STREAM] {
        let ours = rates
            .get(&(what, "valetkey".to_owned()))
            .map(|all| median(all));
        println!("{what}:");
        for peer in peers {
            let Some(rate) = rates.get(&(what, peer.name.clone())).map(|all| median(all)) else {
                println!("  {:10} not measured", peer.name);
                continue;
            };
            let ratio = ours.map_or_else(String::new, |ours| format!("({:.1})", ours / rate));
            println!("  {:10} {rate:10.0}  {ratio}", peer.name);
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

const KEPT: &str = "intercepted requests on 64 kept connections";
const NEW: &str = "new intercepted connections, one request each";
const STREAM: &str = "mebibytes of one intercepted stream";
const STREAMED: usize = 512;
