//! What of the host's files is in the sandbox, and what can be done to it.

use std::fs;
use std::os::unix::fs::symlink;

use launcher::{Error, WorkspaceMode, prepare};

use crate::support::{Box, as_each_user};

#[test]
fn the_hosts_secrets_and_homes_are_not_there() {
    as_each_user("files::the_hosts_secrets_and_homes_are_not_there", || {
        for path in [
            "/etc/shadow",
            "/root/.bashrc",
            "/root/.ssh",
            "/var/log",
            "/proc/self/root/etc/shadow",
            "/home/tester",
            "/run/systemd",
        ] {
            assert_eq!(
                Box::probe(&["open", path, "r"]).output(),
                "ENOENT\n",
                "{path}"
            );
        }
        assert_eq!(Box::probe(&["open", "/etc/passwd", "r"]).output(), "ok\n");
    });
}

#[test]
fn system_folders_cannot_be_written() {
    as_each_user("files::system_folders_cannot_be_written", || {
        let output = Box::shell("for d in / /usr /usr/bin /etc /opt /proc/sys /.sandbox /etc/ssl/certs; do touch $d/x 2>&1 | grep -c 'Read-only\\|denied\\|cannot'; done; mount -o remount,rw /usr 2>/dev/null || echo refused; umount /usr 2>/dev/null || echo refused").output();
        assert_eq!(output.trim(), "1\n1\n1\n1\n1\n1\n1\n1\nrefused\nrefused");
    });
}

#[test]
fn only_harmless_devices_are_there() {
    as_each_user("files::only_harmless_devices_are_there", || {
        let output = Box::shell("ls /dev; ./probe syscall 133 0 020666 0x103; echo x > /dev/null && head -c 4 /dev/urandom | wc -c").output();
        let devices = "fd full null ptmx pts random shm stderr stdin stdout urandom zero";
        let listed: Vec<&str> = output.lines().take(12).collect();
        assert_eq!(listed.join(" "), devices);
        assert!(output.ends_with("4\n"), "{output}");
        let made = Box::shell("mknod /tmp/kvm c 10 232 2>/dev/null || echo refused; mknod z c 0 0 2>/dev/null || echo refused").output();
        assert_eq!(made, "refused\nrefused\n");
    });
}

#[test]
fn no_mount_has_set_user_id_or_foreign_devices() {
    let mounts = Box::shell("cat /proc/self/mounts").output();
    for line in mounts.lines() {
        assert!(line.contains("nosuid"), "{line}");
        let is_device = line.contains(" /dev/");
        assert!(line.contains("nodev") || is_device, "{line}");
    }
}

#[test]
fn sockets_of_the_host_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = format!("valetkey-test-{}", std::process::id());
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    assert_eq!(Box::probe(&["abstract", &name]).output(), "ECONNREFUSED\n");
    assert_eq!(
        Box::probe(&["unix", path.to_str().unwrap()]).output(),
        "ENOENT\n"
    );
}

#[test]
fn a_workspace_behind_a_symbolic_link_is_refused() {
    let sandbox = Box::shell("ls");
    let link = sandbox.folder.path().join("link");
    symlink(sandbox.folder.path().join("home"), &link).unwrap();
    let sandbox = sandbox.with(|spec| spec.view.workspace.as_mut().unwrap().host = link);
    let error = prepare(&sandbox.spec).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[test]
fn a_workspace_exchanged_during_the_start_is_never_the_other_folder() {
    as_each_user(
        "files::a_workspace_exchanged_during_the_start_is_never_the_other_folder",
        || {
            let sandbox = Box::shell("cat secret 2>/dev/null; true").mode(WorkspaceMode::ReadOnly);
            let (work, aside) = (sandbox.work(), sandbox.folder.path().join("aside"));
            let secret = sandbox.folder.path().join("other");
            fs::create_dir(&secret).unwrap();
            fs::write(secret.join("secret"), "test-secret-file").unwrap();
            for _ in 0..20 {
                let Ok(prepared) = prepare(&sandbox.spec) else {
                    panic!("the folder is there");
                };
                fs::rename(&work, &aside).unwrap();
                symlink(&secret, &work).unwrap();
                match prepared.start() {
                    Ok(mut started) => {
                        started.release().unwrap();
                        let finished = started.wait(&mut |_, _| {});
                        assert!(
                            !finished.stdout.text.contains("test-secret"),
                            "{finished:?}"
                        );
                    }
                    Err(Error::View { .. } | Error::Machine { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                fs::remove_file(&work).unwrap();
                fs::rename(&aside, &work).unwrap();
            }
            assert_eq!(sandbox.output(), "");
        },
    );
}

#[test]
fn a_folder_exchanged_for_a_link_does_not_lead_a_cover_elsewhere() {
    let sandbox = Box::shell("true")
        .file("deep/.env", "A=test-secret-env")
        .mode(WorkspaceMode::ReadOnly);
    let prepared = prepare(&sandbox.spec).unwrap();
    fs::rename(sandbox.work().join("deep"), sandbox.work().join("moved")).unwrap();
    symlink("/etc", sandbox.work().join("deep")).unwrap();
    let error = prepared.start().unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[test]
fn a_socket_of_the_host_in_the_workspace_is_covered() {
    as_each_user(
        "files::a_socket_of_the_host_in_the_workspace_is_covered",
        || {
            use std::os::unix::net::UnixListener;
            for mode in [WorkspaceMode::ReadOnly, WorkspaceMode::ReadWrite] {
                let sandbox = Box::probe(&["unix", "socket"]).mode(mode);
                let _listener = UnixListener::bind(sandbox.work().join("socket")).unwrap();
                assert_eq!(sandbox.output(), "EACCES\n");
            }
        },
    );
}
