//! Measures from start to exit of `/bin/true` in our sandbox and in others, alone and many at once, and what one that
//! only stands costs in memory.
//!
//! Usage: `launch VALETKEY [TIMES] [AT ONCE] [FOLDER]`. What is not installed is said to be so. The layers with what is
//! written lie in the folder, `/var/tmp` unless it is given.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use launcher::{Limits, NetworkMode, Spec, Warm, Workspace, WorkspaceMode, prepare};

/// One way to run `/bin/true`.
struct Way {
    name: &'static str,
    run: Box<dyn Fn(usize) -> io::Result<()> + Sync>,
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let binary = arguments
        .next()
        .ok_or_else(|| io::Error::other("give the path of valetkey"))?;
    let binary = PathBuf::from(binary).canonicalize()?;
    let mut number = |otherwise: usize| {
        let given = arguments.next().and_then(|text| text.parse().ok());
        given.unwrap_or(otherwise)
    };
    let (times, many) = (number(50), number(200));
    let place = arguments.next().unwrap_or_else(|| "/var/tmp".into());
    // As a server does, first of all.
    launcher::begin().map_err(io::Error::other)?;
    // On a disk file system, as a user's project is; a memory file system would be quicker.
    let folder = tempfile::Builder::new()
        .prefix("valetkey-bench-")
        .tempdir_in(&place)?;
    let ways = ways(folder.path(), &binary, many)?;
    println!("what is written lies on {}", file_system(folder.path())?);

    println!(
        "start to exit of /bin/true: median of {times} one after another; {many} at once: time until the last has ended, for each"
    );
    let mut floor: Option<(f64, f64)> = None;
    for way in &ways {
        if let Err(error) = (way.run)(0) {
            println!("{:44} does not run here: {error}", way.name);
            continue;
        }
        let alone = alone(way, times)?;
        let crowd = at_once(way, many)?;
        let (first, first_crowd) = *floor.get_or_insert((alone, crowd));
        println!(
            "{:44} {alone:7.2} ms ({:5.1} times)   {crowd:6.2} ms each ({:5.1} times)",
            way.name,
            alone / first,
            crowd / first_crowd
        );
    }
    rested(&ways, times.min(30))?;
    warm(folder.path(), times, floor)?;
    phases(folder.path(), times)?;
    idle(folder.path(), many)
}

/// One after another with a rest before each, after which the kernel is asked for everything anew: to move a process into
/// a control group of the older hierarchies, it first waits until all processors have passed a quiet moment.
fn rested(ways: &[Way], times: usize) -> io::Result<()> {
    println!("after a rest of {} ms: median of {times}", REST.as_millis());
    for way in ways {
        if (way.run)(0).is_err() {
            continue;
        }
        let mut all = Vec::with_capacity(times);
        for _ in 0..times {
            std::thread::sleep(REST);
            let began = Instant::now();
            (way.run)(0)?;
            all.push(began.elapsed());
        }
        all.sort();
        println!("  {:42} {:7.2} ms", way.name, millis(all[times / 2]));
    }
    Ok(())
}

const REST: Duration = Duration::from_millis(100);

/// From the command to its end, where the sandbox stood before.
fn warm(folder: &Path, times: usize, floor: Option<(f64, f64)>) -> io::Result<()> {
    let folder = folder.join("warm");
    let spec = spec(&folder, 0, NetworkMode::ProxyOnly, &["/bin/true"])?;
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let warm = Warm::build(&spec).map_err(io::Error::other)?;
        let began = Instant::now();
        let started = warm.dispatch(&spec);
        let mut started = started.ok_or_else(|| io::Error::other("it does not fit"))?;
        started.release().map_err(io::Error::other)?;
        let _ = started.wait(&mut |_, _| {});
        all.push(millis(began.elapsed()));
    }
    all.sort_by(f64::total_cmp);
    let median = all[times / 2];
    let first = floor.map_or(median, |(alone, _)| alone);
    println!(
        "{:44} {median:7.2} ms ({:5.1} times)",
        "a sandbox that stood before, everything on",
        median / first
    );
    Ok(())
}

/// Where the time of the whole sandbox goes.
fn phases(folder: &Path, times: usize) -> io::Result<()> {
    let folder = folder.join("phases");
    let mut all = [const { Vec::new() }; 3];
    for _ in 0..times {
        let spec = spec(&folder, 0, NetworkMode::ProxyOnly, &["/bin/true"])?;
        let began = Instant::now();
        launcher::expect();
        let prepared = prepare(&spec).map_err(io::Error::other)?;
        let checked = Instant::now();
        let mut started = prepared.start().map_err(io::Error::other)?;
        let built = Instant::now();
        started.release().map_err(io::Error::other)?;
        let _ = started.wait(&mut |_, _| {});
        for (times, (from, to)) in
            all.iter_mut()
                .zip([(began, checked), (checked, built), (built, Instant::now())])
        {
            times.push(millis(to - from));
        }
    }
    for (name, times) in ["checked", "built", "run and reaped"].iter().zip(&mut all) {
        times.sort_by(f64::total_cmp);
        println!("  {name}: {:.2} ms", times[times.len() / 2]);
    }
    Ok(())
}

/// The median of the times on the clock, in milliseconds.
fn alone(way: &Way, times: usize) -> io::Result<f64> {
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        (way.run)(0)?;
        all.push(began.elapsed());
    }
    all.sort();
    Ok(millis(all[times / 2]))
}

/// The time on the clock for many at once, divided by their number, in milliseconds.
fn at_once(way: &Way, many: usize) -> io::Result<f64> {
    let barrier = Barrier::new(many + 1);
    let (failed, began) = std::thread::scope(|scope| {
        let barrier = &barrier;
        let threads: Vec<_> = (0..many)
            .map(|place| {
                scope.spawn(move || {
                    barrier.wait();
                    (way.run)(place)
                })
            })
            .collect();
        // Before it: when this thread goes on, many of the others may have ended.
        let began = Instant::now();
        barrier.wait();
        let failed = threads
            .into_iter()
            .filter_map(|thread| thread.join().ok().and_then(Result::err))
            .next();
        (failed, began)
    });
    let took = began.elapsed();
    match failed {
        Some(error) => Err(error),
        None => Ok(millis(took) / many as f64),
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The kind and the options of the file system that a folder is on (proc(5), `/proc/self/mounts`).
fn file_system(folder: &Path) -> io::Result<String> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let described = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_above = folder.starts_with(place);
        is_above.then(|| (place.len(), format!("{kind} ({options})")))
    });
    let innermost = described.max_by_key(|(length, _)| *length);
    Ok(innermost.map_or_else(|| "an unknown file system".into(), |(_, text)| text))
}

fn ways(folder: &Path, binary: &Path, many: usize) -> io::Result<Vec<Way>> {
    let mut ways = vec![command(
        "fork and exec",
        Path::new("/"),
        &["/bin/true"],
        &[],
    )];
    for (name, network) in [
        ("launcher called in-process, no network", NetworkMode::None),
        (
            "launcher called in-process, everything on",
            NetworkMode::ProxyOnly,
        ),
    ] {
        let folder = folder.join(name.replace([' ', ','], "-"));
        // The layers are the caller's, who has made them before.
        let specs = (0..many.max(1))
            .map(|place| spec(&folder, place, network, &["/bin/true"]))
            .collect::<io::Result<Vec<_>>>()?;
        ways.push(Way {
            name,
            run: Box::new(move |place| {
                launcher::expect();
                let started = prepare(&specs[place]).map_err(io::Error::other)?.start();
                let mut started = started.map_err(io::Error::other)?;
                let doors = started.doors.take();
                started.release().map_err(io::Error::other)?;
                let finished = started.wait(&mut |_, _| {});
                drop(doors);
                match finished.outcome {
                    sdk::report::Outcome::Passed => Ok(()),
                    other => Err(io::Error::other(format!("{other:?}"))),
                }
            }),
        });
    }
    ways.extend(whole(folder, binary)?);
    let sealed = [
        "--unshare-all",
        "--ro-bind",
        "/usr",
        "/usr",
        "--ro-bind",
        "/etc",
        "/etc",
        "--symlink",
        "usr/bin",
        "/bin",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--die-with-parent",
        "--new-session",
        "/bin/true",
    ];
    ways.push(command(
        "bwrap (no seccomp, no network, no overlay)",
        Path::new("/"),
        &[&["bwrap"], &sealed[..]].concat(),
        &[],
    ));
    ways.push(command(
        "unshare (namespaces and nothing in them)",
        Path::new("/"),
        &["unshare", "-Urmpnf", "/bin/true"],
        &[],
    ));
    ways.push(command(
        "nsjail",
        Path::new("/"),
        &["nsjail", "-Mo", "-q", "--chroot", "/", "--", "/bin/true"],
        &[],
    ));
    ways.push(command(
        "firejail",
        Path::new("/"),
        &[
            "firejail",
            "--quiet",
            "--noprofile",
            "--net=none",
            "/bin/true",
        ],
        &[],
    ));
    Ok(ways)
}

/// `valetkey run` as users type it.
fn whole(folder: &Path, binary: &Path) -> io::Result<Vec<Way>> {
    let (config, state) = (folder.join("config"), folder.join("state"));
    fs::DirBuilder::new().mode(0o700).create(&config)?;
    let variables = [
        ("VALETKEY_CONFIG_DIR", config.as_path()),
        ("VALETKEY_STATE_DIR", state.as_path()),
    ];
    let proxied = folder.join("proxied");
    let none = folder.join("none");
    fs::create_dir(&proxied)?;
    fs::create_dir(&none)?;
    let policy = "version = 1\n[[allow]]\nhost = \"api.bench.example\"\n";
    fs::write(proxied.join("valetkey.toml"), policy)?;
    let us = |arguments: &[&str]| {
        Command::new(binary)
            .args(arguments)
            .current_dir(&proxied)
            .envs(variables)
            .output()
    };
    let checked: serde_json::Value = serde_json::from_slice(&us(&["check", "--json"])?.stdout)?;
    let digest = checked["digest"].as_str().unwrap_or_default();
    us(&["policy", "approve", "--digest", digest])?;
    let program = binary.to_string_lossy();
    let line = [&program, "run", "--quiet", "--", "/bin/true"];
    Ok(vec![
        command("valetkey run, no network", &none, &line, &variables),
        command(
            "valetkey run, behind the proxy",
            &proxied,
            &line,
            &variables,
        ),
    ])
}

fn command(name: &'static str, at: &Path, line: &[&str], variables: &[(&str, &Path)]) -> Way {
    let line: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
    let at = at.to_owned();
    let variables: Vec<(String, PathBuf)> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.to_path_buf()))
        .collect();
    Way {
        name,
        run: Box::new(move |_| {
            let status = Command::new(&line[0])
                .args(&line[1..])
                .envs(variables.iter().map(|(name, value)| (name, value)))
                .current_dir(&at)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()?;
            if status.success() {
                Ok(())
            } else {
                Err(io::Error::other(status.to_string()))
            }
        }),
    }
}

/// A sandbox with an overlay workspace, a system call filter and a limit of memory.
fn spec(folder: &Path, place: usize, network: NetworkMode, line: &[&str]) -> io::Result<Spec> {
    let layers = folder.join(format!("layers-{place}"));
    for part in [
        folder.join("work"),
        folder.join("home"),
        layers.join("upper"),
        layers.join("work"),
    ] {
        fs::create_dir_all(part)?;
    }
    let mut spec = Spec::new(line, folder.join("home"));
    spec.network = network;
    spec.limits = Limits {
        memory: Some(512 << 20),
        processes: Some(128),
        ..Limits::default()
    };
    spec.view.workspace = Some(Workspace {
        host: folder.join("work"),
        mode: WorkspaceMode::Overlay {
            upper: layers.join("upper"),
            work: layers.join("work"),
            below: Vec::new(),
        },
        hide: Vec::new(),
        protect: Vec::new(),
    });
    Ok(spec)
}

/// What the machine has less while sandboxes only stand.
fn idle(folder: &Path, many: usize) -> io::Result<()> {
    let folder = folder.join("idle");
    let make = |place| {
        let spec = spec(&folder, place, NetworkMode::ProxyOnly, &["/bin/true"])?;
        let started = prepare(&spec).map_err(io::Error::other)?.start();
        started.map_err(io::Error::other)
    };
    // The first makes what all share.
    let first = make(0)?;
    let before = available()?;
    let standing = (1..=many).map(make).collect::<io::Result<Vec<_>>>()?;
    let used = before.saturating_sub(available()?);
    println!(
        "memory of a sandbox that stands and waits: {} KiB (of {many}, by MemAvailable)",
        used / many as u64
    );
    drop((standing, first));
    Ok(())
}

/// Kibibytes (proc(5), `MemAvailable`).
fn available() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))
}
