//! How paths of a view are compared, told and handed on.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, Stat};

use crate::error::Error;

/// `Path::starts_with`, which takes the two apart each time, for paths that may be compared as they stand.
pub(crate) fn lies_in(path: &Path, folder: &Path) -> bool {
    let (bytes, above) = (path.as_os_str().as_bytes(), folder.as_os_str().as_bytes());
    match bytes.strip_prefix(above) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || path.starts_with(folder),
        // Written in two ways, they may mean the same.
        None => (is_unusual(bytes) || is_unusual(above)) && path.starts_with(folder),
    }
}

/// Whether a path has parts that say nothing.
fn is_unusual(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"//" || pair == b"/.")
}

/// Whether something is a folder.
pub(crate) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// An error about a path of the view.
pub(crate) fn refused(what: &'static str, path: &Path, why: &str) -> Error {
    Error::View {
        what,
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

/// A path as the child takes it, relative to the new root.
pub(crate) fn relative(path: &Path) -> Result<CString, Error> {
    c_string(path.strip_prefix("/").unwrap_or(path))
}

/// A path as a C string.
pub(crate) fn c_string(path: impl AsRef<Path>) -> Result<CString, Error> {
    let path = path.as_ref();
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| refused("path", path, "a path cannot hold a NUL byte"))
}
