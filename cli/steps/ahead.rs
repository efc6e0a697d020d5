//! The next step's sandbox, built while it is decided what that step is.

use launcher::{Started, Warm};

use super::one::spec;
use super::{Context, Layer, Layers, StepSpec};
use crate::failure::Failure;

/// A sandbox for a step to come, with the layer that it writes to.
#[derive(Debug)]
pub(crate) struct Ahead {
    layer: Option<Layer>,
    warm: Warm,
}

impl Ahead {
    /// Builds one as it would be for another step like `step`, above the layers `below`, the oldest first.
    ///
    /// # Errors
    /// Nothing is left of it; the step will build its own and tell what is wrong.
    pub(crate) fn build(
        context: &Context<'_>,
        step: &StepSpec,
        layers: Option<&Layers>,
        below: &[Layer],
    ) -> Result<Self, Failure> {
        let layer = layers.map(|layers| layers.add(below)).transpose()?;
        let built = spec(context, step, layer.as_ref()).and_then(|spec| {
            Warm::build(&spec)
                .map_err(|error| Failure::ours("no sandbox was built beforehand").because(error))
        });
        match built {
            Ok(warm) => Ok(Self { layer, warm }),
            Err(failure) => {
                forget(layer.as_ref(), layers);
                Err(failure)
            }
        }
    }

    /// The sandbox for this step, if it is what would be built for it now.
    pub(crate) fn take(
        self,
        context: &Context<'_>,
        step: &StepSpec,
        layers: Option<&Layers>,
    ) -> Option<(Option<Layer>, Started)> {
        let Self { layer, warm } = self;
        let started = spec(context, step, layer.as_ref())
            .ok()
            .and_then(|spec| warm.dispatch(&spec));
        match started {
            Some(started) => Some((layer, started)),
            None => {
                forget(layer.as_ref(), layers);
                None
            }
        }
    }

    /// Ends it.
    pub(crate) fn discard(self, layers: Option<&Layers>) {
        let Self { layer, warm } = self;
        drop(warm);
        forget(layer.as_ref(), layers);
    }
}

/// Lets go of a layer that nothing was written to. One that cannot be removed goes with the run's empty ones.
fn forget(layer: Option<&Layer>, layers: Option<&Layers>) {
    if let (Some(layer), Some(layers)) = (layer, layers) {
        let _ = layers.drop_layer(layer);
    }
}
