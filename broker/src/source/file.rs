//! A secret in a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use crate::credential::CredentialError;

use super::{MOST, place};

/// The bytes of a file. Links are followed: that is how mounted secrets are laid out.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let cannot = |error: std::io::Error| {
        CredentialError::Source(format!("`{}` cannot be read: {error}", path.display()))
    };
    // Without waiting, so that a pipe in the place of the file does not hang the run.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| cannot(error.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err(CredentialError::Source(format!(
            "`{}` is not a regular file",
            path.display()
        )));
    }
    let mut value = place();
    file.take(MOST as u64 + 1)
        .read_to_end(&mut value)
        .map_err(cannot)?;
    Ok(value)
}
