//! Do real clients work unchanged? Each once with the key put in, once refused, by environment and captured in a sandbox.

mod curl;
mod git;
mod node;
mod packages;
mod python;
mod streaming;

use crate::support::origin::Origin;
use crate::support::stand_in::{anthropic, openai};
use crate::support::{Place, World};

/// A place in which both providers may be called and `elsewhere.example` may not.
pub(crate) struct Setting {
    pub(crate) place: Place,
    pub(crate) openai: Origin,
    pub(crate) anthropic: Origin,
    pub(crate) forbidden: Origin,
}

/// Which way a client's traffic takes.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Sidecar,
    Sandbox,
}

impl Setting {
    pub(crate) fn new(way: Way) -> Self {
        let mut world = World::new();
        let key = world.secret("openai", "provider = \"openai\"");
        let openai = world.origin("api.openai.com", openai::behaviour(&key, None));
        let key = world.secret("anthropic", "provider = \"anthropic\"");
        let anthropic = world.origin("api.anthropic.com", anthropic::behaviour(&key));
        let forbidden = world.forbidden("elsewhere.example");
        world.policy(
            "[[allow]]\nuse = \"openai\"\nsecret = \"openai\"\n\
             [[allow]]\nuse = \"anthropic\"\nsecret = \"anthropic\"\n",
        );
        Self {
            place: way.place(world),
            openai,
            anthropic,
            forbidden,
        }
    }

    /// Holds after a refusal: nothing arrived at the host that is not allowed.
    #[track_caller]
    pub(crate) fn assert_nothing_arrived_elsewhere(&self) {
        assert_eq!(
            self.forbidden.connections(),
            0,
            "elsewhere.example was reached"
        );
    }
}

impl Way {
    pub(crate) fn place(self, world: World) -> Place {
        match self {
            Self::Sidecar => Place::sidecar(world),
            Self::Sandbox => Place::sandbox(world),
        }
    }
}
