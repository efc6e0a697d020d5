//! One module per question that the product answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod architecture;
mod attacks;
mod audit;
mod changes;
mod cli;
mod clients;
mod credentials;
mod demo;
mod escapes;
mod events;
mod faults;
mod files;
mod foresight;
mod interactive;
mod licences;
mod limits;
mod network;
mod places;
mod policy;
mod programs;
mod promises;
mod reads;
mod restart;
mod searching;
mod signals;
mod stand_ins;
mod step_rights;
mod steps;
mod support;
mod vm;
