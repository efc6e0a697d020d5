//! What goes wrong on the machine: its disk is full, or another of its users calls.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::support::World;
use crate::support::origin::Origin;
use crate::support::process::{self, Finished};
use crate::support::serving::{Serving, Sidecar};
use crate::support::world::greeting;

/// A server whose state folder is a small disk of its own, which only its mount namespace has.
struct SmallDisk {
    world: World,
    origin: Origin,
    serving: Serving,
    run: Sidecar,
}

impl SmallDisk {
    fn new() -> Self {
        let mut world = World::new();
        let origin = world.plain_origin("shop.example", greeting());
        world.policy("[[allow]]\nhost = \"shop.example\"\nscheme = \"http\"\n");
        let (state, saved) = (world.path("state"), world.path("elsewhere/state"));
        fs::create_dir(&saved).unwrap();
        let line = "cp -a \"$1\"/. \"$2\" && mount -t tmpfs -o size=16m,mode=700 none \"$1\" && \
                    cp -a \"$2\"/. \"$1\" && shift 2 && exec \"$@\"";
        let served = world.command(&["serve", "--json", "--listen", "127.0.0.1:0"]);
        let before = ["unshare", "-r", "-m", "sh", "-c", line, "sh"].map(Path::new);
        let served = before_it(&[&before[..], &[&state, &saved]].concat(), &served);
        let serving = Serving::start_as(&world, served);
        let create = inside(&serving, &world.command(&["runs", "create", "--json"]));
        let created = process::finish(create, "").passed().json();
        Self {
            run: Sidecar::of(&created),
            world,
            origin,
            serving,
        }
    }

    fn valetkey(&self, arguments: &[&str]) -> Finished {
        let command = inside(&self.serving, &self.world.command(arguments));
        self.world.finish(command, "")
    }

    fn shell(&self, line: &str) {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir("/")
            .env("STATE", self.world.path("state"))
            .env("PATH", std::env::var_os("PATH").unwrap());
        process::finish(inside(&self.serving, &command), "").passed();
    }

    /// A request, its answer's body and status. A server that hangs fails the test.
    fn curl(&self) -> String {
        let line = ["curl", "-sS", "--max-time", "60", "-w", " %{http_code}"];
        let url = ["http://shop.example/"];
        let finished = self.run.run(&self.world, &[&line[..], &url].concat());
        finished.passed().stdout
    }
}

/// A command with another before it, of which it is the last arguments.
fn before_it(first: &[&Path], command: &Command) -> Command {
    let mut whole = Command::new(first[0]);
    whole
        .args(&first[1..])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().unwrap())
        .env_clear();
    for (name, value) in command.get_envs() {
        whole.env(name, value.unwrap());
    }
    whole
}

/// A command that sees what a server sees, and starts in its folder.
fn inside(serving: &Serving, command: &Command) -> Command {
    let pid = serving.pid().to_string();
    let before = [
        "nsenter",
        "--preserve-credentials",
        "-U",
        "-m",
        "-w",
        "-t",
        &pid,
    ];
    before_it(&before.map(Path::new), command)
}

#[test]
fn on_a_full_disk_nothing_leaves_without_a_record_and_with_room_it_goes_on() {
    let disk = SmallDisk::new();
    assert_eq!(disk.curl(), "hello\n 200");
    disk.shell("! cat /dev/zero > \"$STATE/fill\" 2> /dev/null");
    // What is left of the last page of the log takes a few more lines.
    let refused = (0..100)
        .map(|_| disk.curl())
        .find(|answer| answer != "hello\n 200");
    let refused = refused.expect("a disk that is full");
    assert!(
        refused.contains("\"audit-unavailable\"") && refused.ends_with(" 503"),
        "{refused}"
    );
    let arrived = disk.origin.seen().len();
    for _ in 0..5 {
        assert!(disk.curl().ends_with(" 503"));
    }
    assert_eq!(disk.origin.seen().len(), arrived);
    disk.shell("rm \"$STATE/fill\"");
    assert_eq!(disk.curl(), "hello\n 200");
    disk.valetkey(&["audit", "verify"]).passed().says("whole");
    let shown = disk.valetkey(&["audit", "show", &disk.run.run, "--json"]);
    let started = shown.passed().stdout.matches("request.started").count();
    assert_eq!(started, disk.origin.seen().len());
    assert_eq!(started, arrived + 1);
}

#[test]
fn another_users_process_is_not_answered_at_the_control_socket() {
    let world = World::new();
    let socket = world.path("elsewhere/control.sock");
    let control = socket.display().to_string();
    let _serving = world.serve_on(&["--listen", "127.0.0.1:0", "--control", &control]);
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // As if its owner had opened the way there by mistake.
    open(&world.path(""), 0o711);
    open(&world.path("elsewhere"), 0o711);
    open(&socket, 0o666);
    let mut call = Command::new("curl");
    call.args(["-sS", "--unix-socket", &control, "http://valetkey/healthz"])
        .current_dir("/")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap());
    assert_eq!(
        process::finish(before_it(&[Path::new("env")], &call), "")
            .passed()
            .stdout,
        "ok\n"
    );
    if !rustix::process::geteuid().is_root() {
        says("skipped: only root can call as another user");
        return;
    }
    call.uid(NOBODY).gid(NOBODY);
    let finished = process::finish(call, "");
    // The way there was open: the server saw who called, and closed the connection without a word.
    assert_ne!(finished.code(), 0);
    assert_eq!(finished.stdout, "");
    let log = fs::read_to_string(world.path("logs/serve.stderr")).unwrap();
    assert!(log.contains("a process of another user called"), "{log}");
}

#[expect(
    clippy::print_stderr,
    reason = "a part that was not tested must be told"
)]
fn says(what: &str) {
    eprintln!("{what}");
}

const NOBODY: u32 = 65534;
