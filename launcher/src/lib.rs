//! Sandboxes: namespaces, mounts, limits and the steps that run in them.
