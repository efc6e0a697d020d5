//! The folder of the state: for its owner only, with one key that seals what is secret in it.

mod evolving;
mod folder;
mod seal;

pub(crate) use evolving::Evolving;
#[cfg(test)]
pub(crate) use evolving::{SEALED, name as sealed_as};
pub(crate) use folder::Folder;
pub(crate) use seal::SealingKey;
