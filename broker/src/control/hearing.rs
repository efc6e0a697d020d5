//! What a step does, as events for those who follow its run.

use std::sync::Arc;

use sdk::happening::Happening;

use super::feed::Feed;
use super::steps::StepListener;

/// Passes on what one step does.
pub(super) struct Hearing<'h>(pub(super) &'h Arc<Feed>);

impl StepListener for Hearing<'_> {
    fn happened(&self, happening: &Happening) {
        let Ok(data) = happening.data() else {
            return;
        };
        match happening {
            Happening::Started(_) => self.0.milestone(happening.kind(), data),
            // There can be many of them, or they are large.
            _ => self.0.flow(happening.kind(), data),
        }
    }
}
