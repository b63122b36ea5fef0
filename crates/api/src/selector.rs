//! Selectors: which objects a list or watch speaks about.

mod excerpt;
mod field;
mod label;
pub mod object;

pub use excerpt::excerpt;
pub use field::FieldSelector;
pub use label::LabelSelector;
