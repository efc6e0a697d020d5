//! The policy decision point: text becomes a policy, and a policy decides requests.

#![forbid(unsafe_code)]
