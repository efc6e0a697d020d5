//! One module per question that the product answers.

mod architecture;
mod support;
