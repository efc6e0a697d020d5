//! The folder of the state: for its owner only, with one key that seals what is secret in it.

mod folder;
mod seal;

pub(crate) use folder::Folder;
pub(crate) use seal::SealingKey;
