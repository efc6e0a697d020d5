//! Whether a placeholder or the run's token stands where it must not.

use broker::{Found, Run};
use http::HeaderMap;
use policies::RequestPath;

use crate::slots::Plan;

/// What must not leave, in what is left of a request after its credentials were taken out.
pub(crate) fn find<'r>(
    run: &'r Run,
    fields: &HeaderMap,
    path: &RequestPath,
    plan: &Plan,
) -> Option<Found<'r>> {
    let tripwire = run.tripwire();
    plan.rest(path)
        .into_iter()
        .chain(plan.texts())
        .map(str::as_bytes)
        .chain(fields.values().map(|value| value.as_bytes()))
        .find_map(|text| tripwire.find(text))
}
