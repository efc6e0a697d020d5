//! Which paths a repository's index names: what git has of a hidden file can be read from its store.
//!
//! The format is `Documentation/gitformat-index.txt` of git, versions 2, 3 and 4. The file may be anybody's: what does not
//! read as an index ends the list.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The paths in an index, relative to the top of its repository; none if it cannot be read.
pub(crate) fn paths(index: &Path) -> BTreeSet<PathBuf> {
    let mut bytes = Vec::new();
    let read = File::open(index).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    match read {
        Ok(_) => parse(&bytes),
        Err(_) => BTreeSet::new(),
    }
}

fn parse(bytes: &[u8]) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    let mut rest = Rest { bytes, at: 0 };
    let (Some(b"DIRC"), Some(version), Some(count)) = (rest.take(4), rest.number(), rest.number())
    else {
        return paths;
    };
    if !(2..=4).contains(&version) {
        return paths;
    }
    let mut before = Vec::new();
    let mut room = bytes.len();
    for _ in 0..count {
        let Some(path) = entry(&mut rest, version, &before) else {
            return paths;
        };
        // What git wrote shares beginnings, and is not many times as long as the file: that would fill memory.
        match room.checked_sub(path.len() / MOST_EXPANDED) {
            Some(left) if path.len() <= LONGEST => room = left,
            Some(_) | None => return paths,
        }
        paths.insert(PathBuf::from(OsString::from_vec(path.clone())));
        before = path;
    }
    paths
}

fn entry(rest: &mut Rest<'_>, version: u32, before: &[u8]) -> Option<Vec<u8>> {
    let begin = rest.at;
    rest.take(FIXED)?;
    let flags = rest.take(2)?;
    if version >= 3 && flags[0] & EXTENDED != 0 {
        rest.take(2)?;
    }
    if version == 4 {
        // The path is the one before without so many bytes at its end, and with these in their place.
        let shorter = rest.offset()?;
        let kept = before.len().checked_sub(shorter)?;
        let mut path = before.get(..kept)?.to_vec();
        path.extend(rest.until_nul()?);
        return Some(path);
    }
    let path = rest.until_nul()?.to_vec();
    // One to eight NUL bytes, so that the next entry begins at a multiple of eight.
    let length = rest.at.checked_sub(begin)?;
    rest.take(length.next_multiple_of(8) - length)?;
    Some(path)
}

struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A number as in a pack's offsets: seven bits a byte, each continuation one more.
    fn offset(&mut self) -> Option<usize> {
        let mut value: usize = 0;
        for number in 0.. {
            let byte = *self.take(1)?.first()?;
            if number > 0 {
                value = value.checked_add(1)?;
            }
            value = value.checked_mul(128)?.checked_add((byte & 0x7f).into())?;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some(value)
    }

    fn until_nul(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.at += length + 1;
        Some(&rest[..length])
    }
}

/// The bytes of an entry before its flags: times, device, mode, size, and the name of the object.
const FIXED: usize = 60;
const EXTENDED: u8 = 0x40;
const LARGEST: u64 = 256 << 20;
/// How many times as long as the file its paths are together at most.
const MOST_EXPANDED: usize = 8;
/// `PATH_MAX`.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let done = Command::new("git")
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    #[test]
    fn every_version_of_an_index_is_read_as_git_wrote_it() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q"]);
        let names = [
            ".env",
            "a",
            "deep/er/file",
            "deep/er/file2",
            "zebra-with-a-long-name",
        ];
        for name in names {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        git(folder.path(), &["add", "-A"]);
        // Marks an entry with the flags that version 3 is for.
        git(folder.path(), &["update-index", "--skip-worktree", "a"]);
        let expected: BTreeSet<PathBuf> = names.iter().map(PathBuf::from).collect();
        for version in ["2", "3", "4"] {
            git(folder.path(), &["update-index", "--index-version", version]);
            let found = paths(&folder.path().join(".git/index"));
            assert_eq!(found, expected, "version {version}");
        }
    }

    #[test]
    fn an_index_that_would_expand_to_much_more_than_it_is_ends_early() {
        let entry = |text: &[u8]| [&[0_u8; 63][..], text, &[0]].concat();
        let index = |first: usize, more: usize| {
            let mut index = b"DIRC\0\0\0\x04\xff\xff\xff\xff".to_vec();
            index.extend(entry(&vec![b'd'; first]));
            (0..more).for_each(|_| index.extend(entry(b"e")));
            index
        };
        let length = |index: &[u8]| -> usize {
            let paths = parse(index);
            paths.iter().map(|path| path.as_os_str().len()).sum()
        };
        let long = index(3000, 1000);
        assert!(length(&long) < 9 * long.len());
        assert_eq!(length(&index(5000, 1000)), 0);
        // The twin: beginnings that are shared as git shares them.
        assert_eq!(parse(&index(100, 500)).len(), 501);
    }

    #[test]
    fn what_is_no_index_names_nothing() {
        let mut index = b"DIRC\0\0\0\x02\xff\xff\xff\xff".to_vec();
        index.extend([0xff; 100]);
        for bytes in [b"".as_slice(), b"DIRC", b"PACK\0\0\0\x02\0\0\0\x01", &index] {
            assert!(parse(bytes).is_empty());
        }
        let mut endless = b"DIRC\0\0\0\x04\0\0\0\x02".to_vec();
        endless.extend([0; 62]);
        endless.extend([0xff; 64]);
        assert!(parse(&endless).is_empty());
    }
}
