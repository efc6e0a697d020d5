//! D: files of the host.

use std::os::unix::net::UnixListener;

use launcher::Layer::{
    Capabilities, Devices, Hide, Landlock, Masks, MountFlags, ProcCovers, ReadOnly, View,
};
use launcher::{Layer, WorkspaceMode};

use super::{Open, Way, answer, as_both, sandbox, try_all};

#[test]
fn the_hosts_files_are_not_there() {
    try_all(
        "escapes::files::the_hosts_files_are_not_there",
        &[
            Way {
                row: "40: the home",
                line: "cat $HOME/secret 2>&1 | sed 's/.*: //'",
                closed: &["No such file or directory"],
                layers: &[View],
                open: Open::Answers(&["test-secret-home"]),
            },
            Way {
                row: "D5, 49: by an alias of the root",
                line: "cat /proc/self/root$HOME/secret 2>&1 | sed 's/.*: //'",
                closed: &["No such file or directory"],
                layers: &[View],
                open: Open::Answers(&["test-secret-home"]),
            },
            Way {
                row: "D4: a hidden file",
                line: "cat .env 2>&1 | sed 's/.*: //'",
                closed: &["Permission denied"],
                layers: &[Hide],
                open: Open::Answers(&["KEY=test-secret-hidden"]),
            },
            Way {
                row: "D7, 41: devices",
                line: "echo $(ls /dev)",
                closed: &["fd full null ptmx pts random shm stderr stdin stdout urandom zero"],
                layers: &[Devices],
                open: Open::Answers(&["*"]),
            },
            Way {
                row: "D7, 42: a device of one's own",
                line: "./escape mknod /tmp/null 0x103",
                closed: &["EPERM", "EACCES"],
                layers: &[Capabilities, Landlock, MountFlags],
                open: Open::Never("the kernel lets nobody in a user namespace make one"),
            },
            Way {
                row: "D10: a whiteout of one's own in the overlay",
                line: "./escape mknod forged 0",
                closed: &["EPERM", "EACCES"],
                layers: &[Landlock],
                open: Open::Answers(&["EPERM", "ok"]),
            },
        ],
    );
}

#[test]
fn what_tells_about_or_changes_the_machine_is_covered() {
    try_all(
        "escapes::files::what_tells_about_or_changes_the_machine_is_covered",
        &[
            Way {
                row: "D6, 46: keys",
                line: "./probe open /proc/keys r",
                closed: &["EACCES", "ENOENT"],
                layers: &[ProcCovers],
                open: Open::Answers(&["ok", "ENOENT"]),
            },
            Way {
                row: "D6: interrupts",
                line: "./probe open /proc/interrupts r",
                closed: &["EACCES", "ENOENT"],
                layers: &[ProcCovers],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "D6, 46: memory of the kernel",
                line: "./probe open /proc/kcore r",
                closed: &["EACCES", "ENOENT"],
                layers: &[ProcCovers, Capabilities],
                open: Open::Never("it is the machine's root's, who is not in here"),
            },
            Way {
                row: "D6, 24: core_pattern",
                line: "./probe open /proc/sys/kernel/core_pattern w",
                closed: &["EACCES", "EROFS"],
                layers: &[ProcCovers, Capabilities, Landlock],
                open: Open::Never("it is the machine's root's, who is not in here"),
            },
            Way {
                row: "D6, 25: sysrq",
                line: "./probe open /proc/sysrq-trigger w",
                closed: &["EACCES", "ENOENT", "EROFS"],
                layers: &[ProcCovers, Capabilities, Landlock],
                open: Open::Never("it is the machine's root's, who is not in here"),
            },
            Way {
                row: "E4: settings of the network",
                line: "./probe open /proc/sys/net/ipv4/ip_forward w",
                closed: &["EACCES", "EROFS"],
                layers: &[ProcCovers, Capabilities, Landlock],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "D6, 26, 53: sysfs and control groups",
                line: "ls /sys 2>&1 | sed 's/.*: //'",
                closed: &["No such file or directory"],
                layers: &[ProcCovers],
                open: Open::Never("nothing makes it"),
            },
        ],
    );
}

#[test]
fn the_root_is_kept_by_mounts_and_by_landlock_each_alone() {
    as_both(
        "escapes::files::the_root_is_kept_by_mounts_and_by_landlock_each_alone",
        || {
            let write = |off: &[Layer]| {
                let line = "echo x 2>&1 > /made && cat /made";
                answer(&sandbox(line, off).run())
            };
            assert!(write(&[]).contains("create /made"), "D1, 39");
            assert!(write(&[ReadOnly]).ends_with("Permission denied"), "D1, 39");
            assert!(
                write(&[Landlock]).ends_with("Read-only file system"),
                "D1, 39"
            );
            assert_eq!(write(&[ReadOnly, Landlock]), "x", "D1, 39");
        },
    );
}

#[test]
fn a_path_to_read_is_not_written() {
    as_both("escapes::files::a_path_to_read_is_not_written", || {
        let write = |off: &[Layer]| {
            let mut sandbox = sandbox("", off);
            let shown = sandbox.folder.path().join("shown");
            std::fs::create_dir(&shown).unwrap();
            sandbox.spec.argv[2] = format!("echo x > {}/made", shown.display()).into();
            sandbox.spec.view.read.push(shown.clone());
            sandbox.run();
            shown.join("made").exists()
        };
        assert!(!write(&[]), "D1, 39");
        // It lies in `/var/tmp`, below which Landlock lets everything be written: mounts alone keep it.
        assert!(write(&[ReadOnly]), "D1, 39");
    });
}

#[test]
fn a_file_given_to_read_is_not_opened_for_writing() {
    as_both(
        "escapes::files::a_file_given_to_read_is_not_opened_for_writing",
        || {
            // As standard input: what only the caller's shell opened. The test's own input cannot be exchanged, so the
            // file comes by a descriptor that was left open, which is the same to the kernel.
            let write = |off: &[Layer]| {
                let sandbox = sandbox("for f in 3 4 5 6 7 8 9; do ./escape rewrite $f; done", off);
                let path = sandbox.folder.path().join("given");
                std::fs::write(&path, "text").unwrap();
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
                std::fs::set_permissions(&path, mode).unwrap();
                let given = std::fs::File::open(&path).unwrap();
                let _left = rustix::io::dup(&given).unwrap();
                sandbox.run();
                std::fs::read_to_string(path).unwrap()
            };
            assert_eq!(write(&[Layer::Descriptors]), "text");
            assert_ne!(write(&[Layer::Descriptors, Landlock]), "text");
        },
    );
}

#[test]
fn the_owners_settings_are_shown_only_without_the_mask() {
    as_both(
        "escapes::files::the_owners_settings_are_shown_only_without_the_mask",
        || {
            let read = |off: &[Layer]| {
                let mut sandbox = sandbox("cat owner/settings", off);
                let owner = sandbox.work().join("owner");
                std::fs::create_dir(&owner).unwrap();
                std::fs::write(owner.join("settings"), "test-secret-owner").unwrap();
                sandbox.spec.view.workspace.as_mut().unwrap().mode = WorkspaceMode::ReadOnly;
                sandbox.spec.view.mask.push(owner);
                answer(&sandbox.run())
            };
            assert!(!read(&[]).contains("test-secret"), "D8, D11");
            assert_eq!(read(&[Masks]), "test-secret-owner", "D8, D11");
        },
    );
}

#[test]
fn a_socket_of_the_hosts_is_reached_only_where_its_folder_is_shown() {
    as_both(
        "escapes::files::a_socket_of_the_hosts_is_reached_only_where_its_folder_is_shown",
        || {
            let connect = |off: &[Layer]| {
                let sandbox = sandbox("./probe unix $HOME/agent", off);
                let socket = sandbox.folder.path().join("home/agent");
                let _listening = UnixListener::bind(&socket).unwrap();
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                std::fs::set_permissions(&socket, mode).unwrap();
                answer(&sandbox.run())
            };
            assert_eq!(connect(&[]), "ENOENT", "C10, D8, 13");
            // A socket in what is shown is covered, too.
            assert_ne!(connect(&[View]), "ok", "C10, D8, 13");
            assert_eq!(connect(&[View, Hide]), "ok", "C10, D8, 13");
        },
    );
}

#[test]
fn a_working_folder_outside_the_view_is_refused() {
    as_both(
        "escapes::files::a_working_folder_outside_the_view_is_refused",
        || {
            let mut sandbox = sandbox("pwd; ls ..", &[]);
            sandbox.spec.workdir = Some("/root".into());
            let said = answer(&sandbox.run());
            assert!(
                said.contains("changing to the working directory"),
                "A5: {said}"
            );
        },
    );
}
