//! The sandbox for machines that refuse namespaces, tried where a filter like a container's refuses them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use launcher::{Isolation, NetworkMode, WorkspaceMode, prepare};
use sdk::report::{Failure, Limit, Outcome};

use crate::changes::Run;
use crate::support::{Box, built};

/// Runs a test's body where namespaces are refused: as an ordinary user, and as root if root runs the tests.
pub(crate) fn where_namespaces_are_refused(test: &str, body: impl FnOnce()) {
    if std::env::var_os("REFUSED").is_some() {
        return body();
    }
    let users: &[u32] = if rustix::process::geteuid().is_root() {
        &[0, 1001]
    } else {
        &[rustix::process::geteuid().as_raw()]
    };
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (deny, copy) = (folder.path().join("deny"), folder.path().join("tests"));
    fs::write(&deny, built("deny", include_str!("probes/deny.c"))).unwrap();
    fs::set_permissions(&deny, fs::Permissions::from_mode(0o755)).unwrap();
    let own = std::env::current_exe().unwrap();
    if fs::hard_link(&own, &copy).is_err() {
        fs::copy(&own, &copy).unwrap();
    }
    for user in users {
        let mut command = Command::new(&deny);
        command
            .arg(&copy)
            .args(["--exact", test, "--nocapture"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("REFUSED", "1")
            .env("RUST_BACKTRACE", "1")
            .current_dir("/");
        if rustix::process::geteuid().as_raw() != *user {
            command.uid(*user).gid(*user);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "as user {user}:\n{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

pub(crate) fn landlocked(line: &str) -> Box {
    Box::shell(line).with(|spec| spec.isolation = Isolation::Landlock)
}

fn python(program: &str) -> Box {
    Box::new(["python3", "-c", program]).with(|spec| spec.isolation = Isolation::Landlock)
}

#[test]
fn the_workspace_is_a_copy_and_its_changes_are_kept_as_a_layer() {
    where_namespaces_are_refused(
        "fallback::the_workspace_is_a_copy_and_its_changes_are_kept_as_a_layer",
        || {
            let sandbox = landlocked(
                "cat a; cat .env; echo new > b; rm c; echo more >> d/e; chmod 700 d/e; mkdir f; echo g > f/g; \
                 mv h i; ls -a",
            )
            .file("a", "seen\n")
            .file("c", "gone")
            .file("d/e", "one\n")
            .file("h", "moved")
            .file(".env", "TOKEN=test-secret");
            let output = sandbox.output();
            assert!(output.starts_with("seen\n"), "{output}");
            assert!(!output.contains(".env\n") && !output.contains("test-secret"));
            let upper = |name: &str| sandbox.upper().join(name);
            assert_eq!(fs::read_to_string(upper("b")).unwrap(), "new\n");
            assert_eq!(fs::read_to_string(upper("d/e")).unwrap(), "one\nmore\n");
            assert_eq!(
                fs::metadata(upper("d/e")).unwrap().permissions().mode() & 0o777,
                0o700
            );
            assert_eq!(fs::read_to_string(upper("f/g")).unwrap(), "g\n");
            assert_eq!(fs::read_to_string(upper("i")).unwrap(), "moved");
            for gone in ["c", "h"] {
                let found = rustix::fs::lstat(upper(gone)).unwrap();
                let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
                assert_eq!(
                    (kind, found.st_rdev),
                    (rustix::fs::FileType::CharacterDevice, 0)
                );
            }
            // What was not touched is not in the layer, and the folder itself is as it was.
            assert!(!upper("a").exists() && !upper(".env").exists());
            assert_eq!(
                fs::read_to_string(sandbox.work().join("c")).unwrap(),
                "gone"
            );
            assert!(!sandbox.work().join("b").exists());
        },
    );
}

#[test]
fn nothing_is_left_of_folders_that_were_nested_without_end() {
    where_namespaces_are_refused(
        "fallback::nothing_is_left_of_folders_that_were_nested_without_end",
        || {
            let nest = "import os, tempfile
os.chdir(tempfile.gettempdir())
for n in range(3000):
    os.mkdir('deeper')
    os.chdir('deeper')
os.mkdir('closed', 0)
print('made')";
            assert_eq!(python(nest).output(), "made\n");
            let own = format!("-{}-", std::process::id());
            let is_ours = |name: &str| name.starts_with("valetkey-run-") && name.contains(&own);
            for entry in fs::read_dir("/var/tmp").unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap_or_default();
                assert!(!is_ours(&name), "{name} is left");
            }
        },
    );
}

#[test]
fn a_sandbox_whose_first_process_is_killed_ends_and_what_outlives_it_is_told() {
    where_namespaces_are_refused(
        "fallback::a_sandbox_whose_first_process_is_killed_ends_and_what_outlives_it_is_told",
        || {
            for (line, outlives) in [
                ("echo new > b; echo 0; exec sleep 600", false),
                ("sleep 600 > /dev/null 2>&1 & echo $!; wait", true),
            ] {
                let sandbox = landlocked(line);
                let mut started = sandbox.start();
                let mut guard = std::sync::Mutex::new(None);
                *guard.get_mut().unwrap() = children().pop();
                started.release().unwrap();
                let finished = started.wait(&mut |_, bytes| {
                    // It runs. Its first process is the only one that we made.
                    if let Some(guard) = guard.lock().unwrap().take() {
                        kill(guard);
                    }
                    let other = std::str::from_utf8(bytes).unwrap().trim().parse().unwrap();
                    *guard.lock().unwrap() = Some(other).filter(|other| *other != 0);
                });
                let left = guard.get_mut().unwrap().take();
                assert_eq!(finished.outcome, Outcome::Failed(Failure::Signal(9)));
                if let Some(left) = left {
                    kill(left);
                }
                let by_group = finished.not_kept.is_none();
                assert!(by_group || outlives, "{finished:?}");
                if !outlives {
                    assert_eq!(
                        fs::read_to_string(sandbox.upper().join("b")).unwrap(),
                        "new\n"
                    );
                } else if !by_group {
                    let why = finished.not_kept.unwrap();
                    assert!(why.contains("outlived"), "{why}");
                    let place = why.split('`').nth(1).unwrap();
                    fs::remove_dir_all(place).unwrap();
                }
            }
        },
    );
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// The processes that this one has made.
fn children() -> Vec<i32> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let all: String = threads
        .map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).unwrap())
        .collect();
    all.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

#[test]
fn a_copy_is_no_larger_than_the_disk_limit_holes_included() {
    where_namespaces_are_refused(
        "fallback::a_copy_is_no_larger_than_the_disk_limit_holes_included",
        || {
            for (length, is_refused) in [(1 << 40, true), (1 << 19, false)] {
                let sandbox = landlocked("true").with(|spec| spec.limits.disk = Some(16 << 20));
                let file = fs::File::create(sandbox.work().join("hole")).unwrap();
                file.set_len(length).unwrap();
                match prepare(&sandbox.spec) {
                    Err(error) => assert!(
                        is_refused && error.to_string().contains("limits.disk"),
                        "{error}"
                    ),
                    Ok(_) => assert!(!is_refused),
                }
            }
        },
    );
}

#[test]
fn nothing_else_of_the_owner_is_read_or_changed() {
    where_namespaces_are_refused(
        "fallback::nothing_else_of_the_owner_is_read_or_changed",
        || {
            let outside = tempfile::tempdir_in("/var/tmp").unwrap();
            let file = outside.path().join("private");
            fs::write(&file, "test-secret-outside").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            let before = fs::metadata(&file).unwrap();
            let (folder, file_name) = (outside.path().display(), file.display());
            let program = format!(
                "import os, socket, ctypes, fcntl
def attempt(name, what):
    try:
        print(name, 'DONE', what())
    except Exception as error:
        print(name, 'refused', type(error).__name__)
attempt('read', lambda: open('{file_name}').read())
attempt('write', lambda: open('{file_name}', 'w'))
attempt('list', lambda: os.listdir('{folder}'))
attempt('make', lambda: open('{folder}/new', 'w'))
attempt('truncate', lambda: os.truncate('{file_name}', 0))
attempt('chmod', lambda: os.chmod('{file_name}', 0o777))
attempt('chmod folder', lambda: os.chmod('{folder}', 0o777))
attempt('chmod by folder', lambda: os.chmod('private', 0o777, dir_fd=os.open('{folder}', os.O_PATH)))
attempt('times', lambda: os.utime('{file_name}', (1, 1)))
attempt('owner', lambda: os.chown('{file_name}', os.getuid(), os.getgid()))
attempt('attribute', lambda: os.setxattr('{file_name}', 'user.x', b'x'))
attempt('unlink', lambda: os.unlink('{file_name}'))
attempt('rename', lambda: os.rename('{file_name}', 'mine'))
attempt('link', lambda: os.link('{file_name}', 'mine'))
os.symlink('{file_name}', 'way')
attempt('read by link', lambda: open('way').read())
attempt('chmod by link', lambda: os.chmod('way', 0o777))
attempt('watch', lambda: 1 / (ctypes.CDLL(None).inotify_add_watch(ctypes.CDLL(None).inotify_init(), b'{folder}', 0xfff) + 1))
attempt('home', lambda: os.listdir('{folder}/..'))
attempt('temporary', lambda: open('/tmp/x', 'w'))
attempt('memory files', lambda: os.listdir('/dev/shm'))
attempt('shadow', lambda: open('/etc/shadow').read())
attempt('setting', lambda: open('/proc/sys/kernel/core_pattern', 'w'))
attempt('program mode', lambda: os.fchmod(os.open('/usr/bin/env', os.O_RDONLY), 0o4755))
attempt('supervisor', lambda: 1 / (os.path.exists('/proc/%d/environ' % PARENT) and len(open('/proc/%d/environ' % PARENT).read())))
"
            )
            .replace("PARENT", &std::process::id().to_string());
            let output = python(&program).output();
            assert!(!output.contains("DONE"), "{output}");
            assert_eq!(output.matches("refused").count(), 24, "{output}");
            let after = fs::metadata(&file).unwrap();
            assert_eq!(after.permissions(), before.permissions());
            assert_eq!(after.modified().unwrap(), before.modified().unwrap());
            // The allowed neighbours.
            let output = python(
                "import os, tempfile
open('x', 'w').write('1'); os.chmod('x', 0o640); os.utime('x', (5, 7)); os.rename('x', 'y'); os.link('y', 'z')
print(oct(os.stat('z').st_mode & 0o777), int(os.stat('z').st_mtime))
f = tempfile.NamedTemporaryFile(); os.fchmod(f.fileno(), 0o600); print(os.path.expanduser('~') == os.environ['HOME'])
open(os.path.expanduser('~/.cache'), 'w').write('x'); print(len(open('/etc/passwd').read()) > 0)",
            )
            .output();
            assert_eq!(output, "0o640 7\nTrue\nTrue\n");
        },
    );
}

#[test]
fn no_process_outside_is_signalled_or_looked_into() {
    where_namespaces_are_refused(
        "fallback::no_process_outside_is_signalled_or_looked_into",
        || {
            let mut other = Command::new("sleep").arg("60").spawn().unwrap();
            let program = format!(
                "import os, signal, resource, time
def attempt(name, what):
    try:
        print(name, 'DONE', what())
    except OSError as error:
        print(name, 'refused')
for pid in ({other}, {supervisor}, os.getppid()):
    attempt('signal', lambda: os.kill(pid, 0))
    attempt('kill', lambda: os.kill(pid, signal.SIGKILL))
    attempt('environ', lambda: open('/proc/%d/environ' % pid).read())
    attempt('memory', lambda: open('/proc/%d/mem' % pid, 'rb').read(1))
    attempt('files', lambda: os.readlink('/proc/%d/fd/2' % pid))
    attempt('folder', lambda: os.listdir('/proc/%d/cwd' % pid))
    attempt('limits', lambda: resource.prlimit(pid, resource.RLIMIT_CPU))
    attempt('priority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
os.kill(-1, signal.SIGKILL)
child = os.fork()
if child == 0:
    time.sleep(60)
os.kill(child, signal.SIGTERM)
print('own child', os.WTERMSIG(os.waitpid(child, 0)[1]))",
                other = other.id(),
                supervisor = std::process::id()
            );
            let finished = python(&program).run();
            let output = finished.stdout.text;
            let alive = other.try_wait().unwrap().is_none();
            other.kill().unwrap();
            other.wait().unwrap();
            assert!(
                alive && output.ends_with("own child 15\n"),
                "{output}{}",
                finished.stderr.text
            );
            assert!(!output.contains("DONE"), "{output}");
        },
    );
}

#[test]
fn only_connections_are_made_and_the_supervisor_makes_them() {
    where_namespaces_are_refused(
        "fallback::only_connections_are_made_and_the_supervisor_makes_them",
        || {
            let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            service.set_nonblocking(true).unwrap();
            let port = service.local_addr().unwrap().port();
            let program = format!(
                "import socket, asyncio, os, errno
def attempt(name, what):
    try:
        print(name, 'DONE', what())
    except OSError as error:
        print(name, 'refused', errno.errorcode.get(error.errno))
attempt('unix', lambda: socket.socket(socket.AF_UNIX))
attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt('netlink', lambda: socket.socket(16, 3))
attempt('vsock', lambda: socket.socket(40, 1))
attempt('multipath', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt('datagram pair', lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
attempt('bind', lambda: socket.socket().bind(('127.0.0.1', 0)))
attempt('listen', lambda: socket.socket().listen())
attempt('own service', lambda: socket.create_connection(('127.0.0.1', {port}), 5))
attempt('fast open', lambda: socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', {port})))
attempt('fast open by message', lambda: socket.socket().sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', {port})))
a, b = socket.socketpair(); a.send(b'x'); print('pair', b.recv(1))
def talk(s):
    s.sendall(b'hello'); return s.recv(100).decode()
print(talk(socket.create_connection(('192.0.2.7', 443), 10)))
print(talk(socket.create_connection(('127.0.0.1', 3128), 10)))
s = socket.socket(); s.setblocking(False); print('at once', s.connect_ex(('192.0.2.8', 80))); print('blocking', s.getblocking(), os.get_inheritable(s.fileno()))
print('again', errno.errorcode[s.connect_ex(('192.0.2.8', 80))])
async def main():
    r, w = await asyncio.open_connection('192.0.2.9', 80)
    w.write(b'hello'); print((await r.read(100)).decode())
asyncio.run(main())
"
            );
            let sandbox = python(&program).with(|spec| spec.network = NetworkMode::ProxyOnly);
            let mut started = sandbox.start();
            let brokered = started.brokered.take().unwrap();
            let proxy = std::thread::spawn(move || {
                let mut held = Vec::new();
                for mut taken in brokered {
                    held.push(std::thread::spawn(move || {
                        let mut bytes = [0; 5];
                        if taken.stream.read_exact(&mut bytes).is_ok() {
                            let answer = format!("{:?}", taken.destination);
                            let _ = taken.stream.write_all(answer.as_bytes());
                        }
                    }));
                }
                held.into_iter().for_each(|one| one.join().unwrap());
            });
            started.release().unwrap();
            let finished = started.wait(&mut |_, _| {});
            proxy.join().unwrap();
            let output = finished.stdout.text;
            assert_eq!(
                finished.outcome,
                Outcome::Passed,
                "{output}{}",
                finished.stderr.text
            );
            assert!(!output.contains("DONE"), "{output}");
            assert!(
                output.contains("own service refused ECONNREFUSED"),
                "{output}"
            );
            let rest: Vec<&str> = output
                .lines()
                .skip_while(|line| !line.starts_with("pair"))
                .collect();
            assert_eq!(
                rest,
                [
                    "pair b'x'",
                    "Some(192.0.2.7:443)",
                    "None",
                    "at once 0",
                    "blocking False False",
                    "again EISCONN",
                    "Some(192.0.2.9:80)"
                ]
            );
            assert!(service.accept().is_err());
        },
    );
}

#[test]
fn without_a_network_nothing_is_connected() {
    where_namespaces_are_refused("fallback::without_a_network_nothing_is_connected", || {
        let program = "import socket
for place in ('192.0.2.7', 443), ('127.0.0.1', 3128), ('127.0.0.1', 53):
    try: socket.create_connection(place, 5); print('DONE')
    except OSError as error: print(error.errno)";
        let unreachable = format!("{}\n", libc_enetunreach());
        assert_eq!(python(program).output(), unreachable.repeat(3));
    });
}

fn libc_enetunreach() -> i32 {
    rustix::io::Errno::NETUNREACH.raw_os_error()
}

#[test]
fn everything_that_was_started_has_ended() {
    where_namespaces_are_refused("fallback::everything_that_was_started_has_ended", || {
        // A process that left its session and its parent, and one that makes more of itself.
        let line = "python3 -c 'import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(\"alive\", \"w\").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while True:
    try: os.kill(int(open(\"alive\").read()), 0); break
    except (OSError, ValueError): time.sleep(0.01)
print(open(\"alive\").read())'";
        let output = landlocked(line).output();
        let pid: u32 = output.trim().parse().unwrap();
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    });
}

#[test]
fn a_run_can_be_ended_from_outside() {
    where_namespaces_are_refused("fallback::a_run_can_be_ended_from_outside", || {
        let sandbox = landlocked("echo ready; trap '' TERM INT; while :; do sleep 600; done");
        let mut started = sandbox.start();
        let killer = started.killer();
        started.release().unwrap();
        let was_ready = Arc::new(AtomicBool::new(false));
        let finished = started.wait(&mut |_, _| {
            was_ready.store(true, Ordering::SeqCst);
            killer.kill();
        });
        assert!(was_ready.load(Ordering::SeqCst));
        assert!(matches!(
            finished.outcome,
            Outcome::Failed(Failure::Signal(9))
        ));
    });
}

#[test]
fn limits_are_kept_by_watching() {
    where_namespaces_are_refused("fallback::limits_are_kept_by_watching", || {
        let which = |sandbox: Box| match sandbox.run().outcome {
            Outcome::Failed(Failure::Limit(hit)) => hit.which,
            other => panic!("{other:?}"),
        };
        let wall = landlocked("sleep 600")
            .with(|spec| spec.limits.wall = Some(std::time::Duration::from_millis(300)));
        assert_eq!(which(wall), Limit::Wall);
        let memory = python("x = [bytes(b'x' * (1 << 20)) for _ in range(2000)]")
            .with(|spec| spec.limits.memory = Some(200 << 20));
        assert_eq!(which(memory), Limit::Memory);
        let cpu = python("while True: pass")
            .with(|spec| spec.limits.cpu_time = Some(std::time::Duration::from_millis(500)));
        assert_eq!(which(cpu), Limit::CpuTime);
        let disk =
            python("n = 0\nwhile True:\n    open('f%d' % n, 'wb').write(b'x' * (1 << 20)); n += 1")
                .with(|spec| spec.limits.disk = Some(8 << 20));
        assert_eq!(which(disk), Limit::Disk);
    });
}

#[test]
fn what_cannot_be_hidden_or_protected_is_refused() {
    where_namespaces_are_refused(
        "fallback::what_cannot_be_hidden_or_protected_is_refused",
        || {
            let refusal = |sandbox: &Box| prepare(&sandbox.spec).unwrap_err().to_string();
            let sandbox = landlocked("true")
                .file(".env", "x")
                .mode(WorkspaceMode::ReadWrite);
            assert!(refusal(&sandbox).contains(".env"));
            let sandbox = landlocked("true")
                .file("valetkey.toml", "x")
                .mode(WorkspaceMode::ReadWrite)
                .with(|spec| {
                    let workspace = spec.view.workspace.as_mut().unwrap();
                    workspace.protect = vec!["valetkey.toml".into()];
                });
            assert!(refusal(&sandbox).contains("valetkey.toml"));
            let sandbox = landlocked("true").file("a", "x");
            let inside = sandbox.work().join("a");
            let sandbox = sandbox
                .mode(WorkspaceMode::ReadWrite)
                .with(|spec| spec.view.mask = vec![inside]);
            assert!(refusal(&sandbox).contains("/a`"));
        },
    );
}

#[test]
fn a_workspace_without_secrets_is_shown_itself() {
    where_namespaces_are_refused(
        "fallback::a_workspace_without_secrets_is_shown_itself",
        || {
            let sandbox = landlocked("pwd; cat a; echo b > b; echo c > a; cat a")
                .file("a", "a\n")
                .mode(WorkspaceMode::ReadWrite);
            let output = sandbox.output();
            assert_eq!(output, format!("{}\na\nc\n", sandbox.work().display()));
            assert_eq!(fs::read_to_string(sandbox.work().join("b")).unwrap(), "b\n");
            let sandbox = landlocked("cat a; echo c > a; echo d > d; cat a; chmod 777 a")
                .file("a", "a\n")
                .mode(WorkspaceMode::ReadOnly);
            let finished = sandbox.run();
            assert_eq!(finished.stdout.text, "a\na\n", "{finished:?}");
            assert_eq!(fs::read_to_string(sandbox.work().join("a")).unwrap(), "a\n");
            assert_ne!(
                fs::metadata(sandbox.work().join("a"))
                    .unwrap()
                    .permissions()
                    .mode()
                    & 0o777,
                0o777
            );
            // With something hidden in it, a copy is shown.
            let sandbox = landlocked("ls -a; echo c > a; cat a")
                .file("a", "a\n")
                .file(".env", "test-secret")
                .mode(WorkspaceMode::ReadOnly);
            assert_eq!(sandbox.run().stdout.text, ".\n..\na\nprobe\na\n");
        },
    );
}

#[test]
fn it_has_no_capability_and_no_way_to_one() {
    where_namespaces_are_refused("fallback::it_has_no_capability_and_no_way_to_one", || {
        let output =
            landlocked("grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status").output();
        let found: Vec<&str> = output.split_whitespace().skip(1).step_by(2).collect();
        assert_eq!(
            found,
            ["0000000000000000", "0000000000000000", "1", "2"],
            "{output}"
        );
        assert_eq!(landlocked("ls /proc/self/fd | wc -l").output().trim(), "4");
    });
}

#[test]
fn a_later_step_sees_what_the_earlier_ones_left() {
    where_namespaces_are_refused(
        "fallback::a_later_step_sees_what_the_earlier_ones_left",
        || {
            let mut run = Run::over(landlocked("").file("a", "1").file("gone", "2"));
            run.step("echo one > a; rm gone; mkdir new; echo n > new/file");
            let output = run.step("cat a new/file; ls gone 2>/dev/null; echo two >> a");
            assert_eq!(output, "one\nn\n");
            run.apply(&[]).unwrap();
            let text = std::fs::read_to_string(run.work().join("a")).unwrap();
            assert_eq!(text, "one\ntwo\n");
            assert!(!run.work().join("gone").exists());
        },
    );
}
