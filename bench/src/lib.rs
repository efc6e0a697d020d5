//! Side-by-side benchmarks; see `benches/` and `README.md` here.
