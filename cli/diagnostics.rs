//! Diagnostics for the operator, on standard error. They are not the audit log, and may be turned off.

use tracing_subscriber::EnvFilter;

/// Begins to print warnings, or what `VALETKEY_LOG` asks for, such as `info` or `proxy=debug`.
///
/// Libraries that see header fields or keys never print below a warning, whatever is asked for.
pub(crate) fn begin() {
    let asked = std::env::var("VALETKEY_LOG").unwrap_or_default();
    let mut filter = EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .parse_lossy(asked);
    for library in [
        "h2",
        "hyper",
        "hyper_util",
        "rustls",
        "hickory_proto",
        "hickory_resolver",
    ] {
        if let Ok(quiet) = format!("{library}=warn").parse() {
            filter = filter.add_directive(quiet);
        }
    }
    // Fails only if somebody else has begun, and then diagnostics are printed already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(crate::terminal::has_colours(std::io::stderr()))
        // It would tell them by panicking, where standard error is closed.
        .log_internal_errors(false)
        .without_time()
        .with_target(false)
        .compact()
        .try_init();
}
