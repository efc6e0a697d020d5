//! Which rights a `[steps.NAME]` leaves to its step.

use super::settings::read_network;
use crate::grammar;
use crate::reader::{Item, Section};
use crate::settings::Placed;
use crate::step::{StepName, StepRights, Steps};

/// Reads every `[steps.NAME]`. What its `allow` means is found once all rules are known.
pub(super) fn read(file: &Section<'_>) -> Steps {
    let mut steps = Steps::new();
    let Some(section) = file.map("steps") else {
        return steps;
    };
    for (at, item) in section.items().enumerate() {
        if at == MOST_STEPS {
            let message = format!("a policy has rights for at most {MOST_STEPS} steps");
            item.refuse(message, None);
            break;
        }
        let name = match StepName::parse(&item.key().text) {
            Ok(name) => Some(name),
            Err(error) => {
                section.refuse(&item.key().span, error.to_string(), None);
                None
            }
        };
        let rights = read_step(&item);
        if let Some(name) = name {
            steps.insert(name, rights);
        }
    }
    steps
}

fn read_step(item: &Item<'_, '_>) -> Placed<StepRights> {
    let section = item.section(grammar::STEP);
    let allow = section.item("allow").and_then(|allow| {
        let texts = allow.texts()?;
        if texts.is_empty() {
            let hint = "a step without a way out says `network = \"none\"`".to_owned();
            allow.refuse("`allow` names no rule", Some(hint));
        }
        let place = |text: crate::reader::At<&str>| Placed {
            value: text.value.to_owned(),
            source: section.source().clone(),
            span: text.span,
        };
        Some(texts.into_iter().map(place).collect::<Vec<_>>())
    });
    let rights = StepRights {
        allow,
        network: read_network(&section),
        rules: Vec::new(),
    };
    if !section.has("allow") && !section.has("network") {
        let hint = "name the rules that are left to it, or remove it: a step that is not named has the run's rights";
        section.refuse(
            section.span(),
            "the step says nothing about its rights",
            Some(hint.to_owned()),
        );
    }
    if rights.is_cut_off()
        && let Some(allow) = section.item("allow")
    {
        let hint = "remove one of them".to_owned();
        allow.refuse("without a network no rule is of use", Some(hint));
    }
    Placed {
        value: rights,
        source: section.source().clone(),
        span: section.span().clone(),
    }
}

/// More than anybody writes by hand; each costs an index of its rules.
const MOST_STEPS: usize = 256;
