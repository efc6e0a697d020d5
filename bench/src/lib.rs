//! Side-by-side benchmarks: one origin, one load, several proxies, in the same run. See `README.md` here.

pub mod authority;
pub mod cpu;
pub mod load;
pub mod origin;
pub mod peer;
