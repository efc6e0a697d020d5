//! Runs, run tokens, secrets, grants and the audit log.

#![forbid(unsafe_code)]
