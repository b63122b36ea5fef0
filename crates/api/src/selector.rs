//! Selectors: which objects a list or watch speaks about.

mod field;
mod label;
pub mod object;

pub use field::FieldSelector;
pub use label::LabelSelector;
