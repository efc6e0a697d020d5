//! One module per question that the product answers.

mod architecture;
mod attacks;
mod clients;
mod licences;
mod searching;
mod stand_ins;
mod support;
