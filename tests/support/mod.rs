//! What the tests share: stand-ins for the world outside, a small world around the real binary, and the search for leaks.

pub(crate) mod authority;
pub(crate) mod leak;
pub(crate) mod origin;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod serving;
pub(crate) mod session;
pub(crate) mod stand_in;
pub(crate) mod tools;
pub(crate) mod world;

use std::path::PathBuf;

pub(crate) use place::Place;
pub(crate) use world::World;

/// The folder of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
