//! An initial memory disk, as the kernel unpacks it (`newc`, Documentation/driver-api/early-userspace/buffer-format.rst).

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bytes of an archive.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// An empty folder.
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, (0, 0), &[]);
    }

    /// A program or a file.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, 0o100_755, (0, 0), content);
    }

    /// All that is below a folder.
    pub(crate) fn tree(&mut self, top: &Path) {
        let mut left = vec![top.to_owned()];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(&folder).unwrap().flatten() {
                let path = entry.path();
                let found = path.symlink_metadata().unwrap();
                let name = path.strip_prefix(top).unwrap().display().to_string();
                let content = if found.is_symlink() {
                    let target = fs::read_link(&path).unwrap();
                    target.as_os_str().as_bytes().to_vec()
                } else if found.is_dir() {
                    left.push(path.clone());
                    Vec::new()
                } else {
                    fs::read(&path).unwrap()
                };
                self.entry(&name, found.mode(), (found.uid(), found.gid()), &content);
            }
        }
    }

    /// The archive, closed.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, (user, group): (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).unwrap();
        let name_size = u32::try_from(name.len() + 1).unwrap();
        let fields = [
            self.entries,
            mode,
            user,
            group,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}
