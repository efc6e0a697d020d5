//! What is on the machine: busybox for the usual commands, and programs of this host with the libraries they load.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's static one.
pub(crate) const BUSYBOX: &str = "/usr/bin/busybox";

/// The machine's files, in a folder of this host.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    /// The usual commands, users and folders.
    pub(crate) fn new() -> Self {
        let files = Self(
            tempfile::Builder::new()
                .prefix("valetkey-vm-files-")
                .tempdir_in("/var/tmp")
                .unwrap(),
        );
        for folder in [
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "usr/sbin",
            "etc",
            "proc",
            "sys",
            "dev",
            "root",
            "home/user",
            "tmp",
            "var/tmp",
            "run",
            "mnt",
        ] {
            fs::create_dir_all(files.path(folder)).unwrap();
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), files.path(name)).unwrap();
        }
        for name in ["tmp", "var/tmp"] {
            let open = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(files.path(name), open).unwrap();
        }
        files.write(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nuser:x:1001:1001::/home/user:/bin/sh\n",
        );
        files.write("etc/group", "root:x:0:\nuser:x:1001:\n");
        files.write("etc/hosts", "127.0.0.1 localhost\n");
        files.copy(Path::new(BUSYBOX), "busybox");
        files.copy(Path::new(BUSYBOX), "usr/bin/busybox");
        let list = Command::new(BUSYBOX).arg("--list").output().unwrap();
        for name in String::from_utf8(list.stdout).unwrap().lines() {
            // The same link a second time for a name that stands in the list twice.
            let _ = symlink("busybox", files.path("usr/bin").join(name));
        }
        files
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A text file; a script can be executed.
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.program_of(text.as_bytes(), name);
    }

    /// A program of this host, with the libraries that it loads and without what only a debugger reads.
    pub(crate) fn program(&self, host: &Path, at: &str) {
        self.copy(host, at);
        let stripped = Command::new("strip")
            .arg("--strip-debug")
            .arg(self.path(at))
            .output();
        assert!(stripped.unwrap().status.success(), "{at}");
        let listed = Command::new("ldd").arg(host).output().unwrap();
        for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
            let library = Path::new(word);
            let place = word.trim_start_matches('/');
            if library.is_absolute() && !self.path(place).exists() {
                self.copy(library, place);
            }
        }
    }

    /// A program given by its bytes.
    pub(crate) fn program_of(&self, bytes: &[u8], at: &str) {
        fs::create_dir_all(self.path(at).parent().unwrap()).unwrap();
        fs::write(self.path(at), bytes).unwrap();
        fs::set_permissions(self.path(at), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Debian's Python with its library.
    pub(crate) fn python(&self) {
        const PYTHON: &str = "/usr/bin/python3";
        self.program(Path::new(PYTHON), "usr/bin/python3");
        let found = Command::new(PYTHON)
            .args(["-c", "import os; print(os.path.dirname(os.__file__))"])
            .output()
            .unwrap();
        let library = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
        let place = self.path("usr/lib").join(library.file_name().unwrap());
        fs::create_dir_all(&place).unwrap();
        for entry in fs::read_dir(&library).unwrap().flatten() {
            // Large, and nothing that a small program needs.
            const LEFT_OUT: &[&str] = &["test", "idlelib", "ensurepip", "lib2to3", "tkinter"];
            let name = entry.file_name().to_string_lossy().into_owned();
            if LEFT_OUT.contains(&name.as_str()) || name.starts_with("config-") {
                continue;
            }
            let copied = Command::new("cp")
                .arg("-a")
                .args([&entry.path(), &place])
                .status();
            assert!(copied.unwrap().success(), "{name}");
        }
    }

    fn copy(&self, host: &Path, at: &str) {
        let to = self.path(at);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(host, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}
