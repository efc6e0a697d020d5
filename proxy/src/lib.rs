//! The policy enforcement point: it carries a run's requests to the upstreams its policy allows.

#![forbid(unsafe_code)]
