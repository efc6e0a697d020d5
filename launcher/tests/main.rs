//! What a sandbox keeps in and keeps out, tried from inside.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

#[path = "../../tests/vm/boot/mod.rs"]
mod boot;

mod basics;
mod changes;
mod copied;
mod escapes;
mod exhaustion;
mod fallback;
mod files;
mod hiding;
mod kernel;
mod layers;
mod limits;
mod merged;
mod network;
mod processes;
mod programs;
mod refused;
mod reproduces;
mod setup;
mod terminal;
mod view;
mod vm;
mod warm;
