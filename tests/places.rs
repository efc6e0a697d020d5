//! What becomes of a run where the machine refuses a part of the sandbox.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::support::process::Finished;
use crate::support::world::{World, greeting};

/// A program that becomes another one under a filter like a container's, which refuses namespaces and mounts; with
/// `-NUMBER:ERRNO`, those calls fail like that instead.
fn deny() -> PathBuf {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let source = folder.path().join("deny.c");
        fs::write(&source, include_str!("../launcher/tests/probes/deny.c")).unwrap();
        let built = Command::new("gcc")
            .args(["-static", "-O1", "-w", "-o"])
            .args([&folder.path().join("deny"), &source])
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        folder
    });
    folder.path().join("deny")
}

/// Runs `valetkey run` where namespaces are refused.
fn run(world: &World, refused: &[&str], options: &[&str], command: &[&str]) -> Finished {
    let inner = world.command(&[&["run"], options, &["--"], command].concat());
    let mut outer = Command::new(deny());
    outer
        .args(refused)
        .arg(inner.get_program())
        .args(inner.get_args());
    outer.env_clear();
    for (name, value) in inner.get_envs() {
        outer.env(name, value.unwrap());
    }
    outer.current_dir(world.path("project"));
    world.finish(outer, "")
}

fn landlocked(world: &World, command: &[&str]) -> Finished {
    run(world, &[], &["--isolation", "landlock"], command)
}

/// Rules without the test clients to read: what has to be hidden in them could not be.
fn alone(rules: &str) -> String {
    format!("{rules}[sandbox]\nread = []\n")
}

/// A shop behind a rule and a neighbour behind none.
fn shop() -> (World, crate::support::origin::Origin) {
    let mut world = World::new();
    let origin = world.origin("shop.example", greeting());
    world.policy(&alone("[[allow]]\nhost = \"shop.example\"\n"));
    (world, origin)
}

const WITHOUT_PROXY: &str =
    "unset HTTPS_PROXY https_proxy HTTP_PROXY http_proxy ALL_PROXY all_proxy; ";

#[test]
fn where_namespaces_are_refused_nothing_runs_unless_the_owner_asks_for_less() {
    let (world, origin) = shop();
    let finished = run(&world, &[], &[], &["sh", "-c", "echo ran > ran"]);
    assert_eq!(finished.code(), 125);
    finished.says("--isolation landlock");
    assert_eq!(origin.connections(), 0);
    let finished = run(&world, &[], &["--isolation", "either"], &["echo", "ran"]);
    finished.passed().says("not all was kept apart").says("ran");
}

#[test]
fn which_isolation_a_run_has_is_decided_once_for_all_its_steps() {
    let (world, _origin) = shop();
    world.file(
        "steps.toml",
        "[[step]]\nname = \"one\"\nshell = \"echo 1 > one\"\n[[step]]\nname = \"two\"\nshell = \"cat one\"\n",
    );
    let options = ["--isolation", "either", "--steps", "steps.toml"];
    let finished = run(&world, &[], &options, &[]).passed();
    let why = "namespaces are refused here, so Landlock is used";
    assert_eq!(
        finished.stderr.matches(why).count(),
        1,
        "{}",
        finished.stderr
    );
    finished.says("not all was kept apart").says("two | 1");
}

#[test]
fn a_key_reaches_its_host_from_a_sandbox_without_namespaces() {
    let mut world = World::new();
    let origin = world.origin("shop.example", greeting());
    let key = world.secret(
        "shop",
        "hosts = [\"shop.example\"]\ninject = { bearer = true }",
    );
    world.policy(&alone(
        "[[allow]]\nhost = \"shop.example\"\nsecret = \"shop\"\n",
    ));
    let line = "curl -sS -H \"Authorization: Bearer $SHOP_TOKEN\" https://shop.example/a";
    landlocked(&world, &["sh", "-c", line])
        .passed()
        .says("hello");
    assert_eq!(
        origin.last().field("authorization"),
        format!("Bearer {key}")
    );
}

#[test]
fn programs_that_ignore_the_proxy_are_captured_and_refused_alike() {
    let (mut world, origin) = shop();
    let forbidden = world.forbidden("elsewhere.example");
    let line = format!("{WITHOUT_PROXY}curl -sS https://shop.example/b");
    landlocked(&world, &["sh", "-c", &line])
        .passed()
        .says("hello");
    assert_eq!(origin.seen().len(), 1);
    let line = format!("{WITHOUT_PROXY}curl -sS https://elsewhere.example/c");
    landlocked(&world, &["sh", "-c", &line]).says("host-not-allowed");
    let line = format!(
        "{WITHOUT_PROXY}curl -sS --resolve elsewhere.example:443:192.0.2.7 https://elsewhere.example/"
    );
    landlocked(&world, &["sh", "-c", &line]).says("host-not-allowed");
    landlocked(&world, &["curl", "-sS", "https://elsewhere.example/d"]).says("host-not-allowed");
    assert_eq!(forbidden.connections(), 0);
}

#[test]
fn the_report_says_what_was_not_kept_apart() {
    let (world, _origin) = shop();
    let finished = run(
        &world,
        &[],
        &["--isolation", "landlock", "--json"],
        &["true"],
    );
    let report: serde_json::Value =
        serde_json::from_str(finished.stdout.lines().last().unwrap()).unwrap();
    let gaps = report["not_isolated"].as_array().unwrap();
    assert!(
        gaps.iter()
            .any(|gap| gap.as_str().unwrap().contains("processes of this machine"))
    );
    // With namespaces there is nothing to say.
    let finished = world.valetkey(&["run", "--json", "--", "true"]).passed();
    let report: serde_json::Value =
        serde_json::from_str(finished.stdout.lines().last().unwrap()).unwrap();
    assert!(report.get("not_isolated").is_none());
}

#[test]
fn a_run_needs_no_program_of_the_machine() {
    let (world, origin) = shop();
    // No helper such as `ip`, `nft` or `newuidmap`: nothing is found by name, and the administrator's folders are empty.
    let inner = world.command(&[
        "run",
        "--",
        "/usr/bin/curl",
        "-sS",
        "--noproxy",
        "*",
        "https://shop.example/",
    ]);
    let mut outer = Command::new("/usr/bin/unshare");
    outer.env_clear();
    for (name, value) in inner.get_envs() {
        outer.env(name, value.unwrap());
    }
    outer.env("PATH", "").current_dir(world.path("project"));
    if !fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0) {
        outer.args(["--user", "--map-root-user"]);
    }
    let line = "for folder in /usr/sbin /usr/local/sbin; do /bin/mount -t tmpfs none $folder || exit 9; done; exec \"$@\"";
    outer.args(["--mount", "/bin/sh", "-c", line, "sh"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    world.finish(outer, "").passed().says("hello");
    assert_eq!(origin.connections(), 1);
}

/// What is said, with the exit code of something that never ran, where this call fails like that.
fn said_where(world: &World, refused: &[&str], options: &[&str]) -> String {
    let finished = run(world, refused, options, &["sh", "-c", "echo ran"]);
    assert_eq!(finished.code(), 125, "{}", finished.all());
    assert!(!finished.stdout.contains("ran"));
    finished.stderr
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_kernel_that_lacks_a_call_is_told_apart_from_one_that_refuses_it() {
    let (world, _origin) = shop();
    // fsopen and mount_setattr: not known.
    for call in ["-430:38", "-442:38"] {
        let said = said_where(&world, &[call], &[]);
        assert!(said.contains("Linux 5.12"), "{call}: {said}");
    }
    // clone3: not known, as a container's filter says.
    let said = said_where(&world, &["-435:38"], &[]);
    assert!(said.contains("system call filter"), "{said}");
    // The allowed neighbour.
    run(&world, &["-500:38"], &[], &["echo", "ran"])
        .passed()
        .says("ran");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_root_that_cannot_be_left_is_covered() {
    let (world, origin) = shop();
    // pivot_root: EINVAL, as on an initial memory disk.
    let line = "ls / /root /home; cat /etc/shadow; curl -sS https://shop.example/";
    let finished = run(&world, &["-155:22"], &[], &["sh", "-c", line]).passed();
    finished
        .says("hello")
        .says("cannot access '/root'")
        .says_nothing_of("root:*");
    assert_eq!(origin.connections(), 1);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_machine_without_landlock_or_questions_runs_nothing_under_landlock() {
    let (world, _origin) = shop();
    let landlock = &["--isolation", "landlock"];
    // landlock_create_ruleset: not known, as in gVisor.
    let said = said_where(&world, &["-444:38"], landlock);
    assert!(said.contains("this kernel has no Landlock"), "{said}");
    // The same: turned off at boot.
    let said = said_where(&world, &["-444:95"], landlock);
    assert!(said.contains("`lsm=`"), "{said}");
    // seccomp: no listener, as in gVisor.
    let said = said_where(&world, &["-317:22"], landlock);
    assert!(said.contains("gVisor"), "{said}");
    // With `either` there is nothing left then.
    let said = said_where(&world, &["-435:38", "-444:38"], &["--isolation", "either"]);
    assert!(said.contains("Landlock"), "{said}");
}

#[test]
fn a_covered_proc_is_told() {
    let (world, _origin) = shop();
    let inner = world.command(&["run", "--", "true"]);
    let mut outer = Command::new("/usr/bin/unshare");
    outer.env_clear();
    for (name, value) in inner.get_envs() {
        outer.env(name, value.unwrap());
    }
    outer.current_dir(world.path("project"));
    let line = "mount --bind /dev/null /proc/uptime && exec \"$@\"";
    outer.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        line,
        "sh",
    ]);
    outer.arg(inner.get_program()).args(inner.get_args());
    let finished = world.finish(outer, "");
    assert_eq!(finished.code(), 125, "{}", finished.all());
    finished.says("systempaths=unconfined");
}

#[test]
fn a_sandbox_in_a_sandbox_says_so() {
    let (world, _origin) = shop();
    let binary = world.command(&["doctor"]).get_program().to_owned();
    let own = world.path("project/valetkey");
    fs::copy(binary, &own).unwrap();
    let line = "mkdir -p $HOME/w && cd $HOME/w && exec $OLDPWD/valetkey run --config-dir $HOME/c --state-dir $HOME/s -- true";
    let finished = world.run(&["sh", "-c", line]);
    assert_eq!(finished.code(), 125, "{}", finished.all());
    finished.says("this is a sandbox of Valetkey already");
}

#[test]
fn doctor_says_what_is_lost_what_mends_it_and_what_keeps_each_limit() {
    let world = World::new();
    let told = |refused: &[&str]| {
        let inner = world.command(&["doctor", "--json"]);
        let mut outer = Command::new(deny());
        outer
            .args(refused)
            .arg(inner.get_program())
            .args(inner.get_args());
        outer.env_clear();
        for (name, value) in inner.get_envs() {
            outer.env(name, value.unwrap());
        }
        let finished = world.finish(outer, "");
        let text = finished.stdout.lines().last().unwrap().to_owned();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let check = |all: &serde_json::Value, name: &str| {
        let checks = all["checks"].as_array().unwrap();
        checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap()
            .clone()
    };
    let all = told(&[]);
    let user = check(&all, "user namespace");
    assert_eq!(user["ok"], false);
    assert!(
        user["detail"]
            .as_str()
            .unwrap()
            .contains("no sandbox of namespaces")
    );
    assert!(
        user["advice"]
            .as_str()
            .unwrap()
            .contains("--security-opt seccomp=unconfined")
    );
    assert_eq!(check(&all, "sandbox without namespaces")["ok"], true);
    assert_eq!(all["ok"], false);
    for limit in ["memory", "cpus", "cpu_time", "processes", "disk"] {
        assert!(all["limits"][limit].is_string(), "{limit}");
    }
    // Nothing is refused: the twin.
    let all = told(&["-500:38"]);
    assert_eq!(check(&all, "user namespace")["ok"], true);
    assert_eq!(check(&all, "proc mount")["ok"], true);
    assert_eq!(all["ok"], true);
}

/// Mounts two overlays over a folder, as many as the kernel takes, and becomes another program in it.
const COVERED: &str = r#"
import ctypes, os, sys
folder, empty, program = sys.argv[1], sys.argv[2], sys.argv[3:]
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(2):
    lower = f"userxattr,lowerdir={folder}:{empty}".encode()
    if libc.mount(b"none", folder.encode(), b"overlay", 0, lower):
        sys.exit(os.strerror(ctypes.get_errno()))
os.chdir(folder)
os.execv(program[0], program)
"#;

#[test]
fn where_the_kernel_refuses_the_overlay_the_steps_of_a_run_work_on_copies() {
    let world = World::new();
    world.policy("[sandbox]\nnetwork = \"none\"");
    world.file("a", "before\n");
    let steps = "[[step]]\nname = \"one\"\nshell = \"cat a; echo one > a\"\n\
                 [[step]]\nname = \"two\"\nneeds = [\"one\"]\nshell = \"cat a; echo two >> a; cat a\"\n";
    world.file("steps.toml", steps);
    fs::create_dir(world.path("empty")).unwrap();
    let inner = world.command(&["run", "--steps", "steps.toml"]);
    let program = world.path("elsewhere/valetkey");
    fs::copy(inner.get_program(), &program).unwrap();
    let mut outer = Command::new("/usr/bin/unshare");
    // An ordinary user's: root's folders there cannot be shown as another user's, which is found out before.
    if rustix::process::geteuid().is_root() {
        use std::os::unix::process::CommandExt;
        let mut own = Command::new("chown");
        own.args(["-R", "1001:1001"]).arg(world.path(""));
        assert!(own.status().unwrap().success());
        outer.uid(1001).gid(1001);
    }
    outer
        .args(["--user", "--map-current-user", "--keep-caps", "--mount"])
        .args(["/usr/bin/python3", "-c", COVERED])
        .args([world.path("project"), world.path("empty"), program])
        .args(inner.get_args())
        .env_clear();
    for (name, value) in inner.get_envs() {
        outer.env(name, value.unwrap());
    }
    let finished = world.finish(outer, "").passed();
    finished
        .says("the kernel refuses it")
        .says("before")
        .says("one\n")
        .says("two\n");
    let text = fs::read_to_string(world.path("project/a")).unwrap();
    assert_eq!(text, "before\n");
}
