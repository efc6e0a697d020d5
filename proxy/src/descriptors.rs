//! How many connections one run may have, so that it leaves descriptors to the others.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The connections of one run at most. The process's own limit is raised as far as it may be: most systems begin with
/// one for programs that use `select`.
pub(crate) fn share() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    share_of(current)
}

/// A connection of a run has at most one to an upstream, so four runs at their limits still leave half to the others.
fn share_of(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.map_or(usize::MAX, |count| {
        usize::try_from(count).unwrap_or(usize::MAX)
    });
    (descriptors / 8).max(LEAST)
}

/// Fewer would let nothing work.
const LEAST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_leaves_descriptors_to_others() {
        assert_eq!(share_of(Some(1024)), 128);
        assert_eq!(share_of(Some(524_288)), 65_536);
        assert_eq!(share_of(Some(64)), LEAST);
        assert!(share_of(None) > 1 << 32);
    }
}
