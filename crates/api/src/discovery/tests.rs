//! The two halves of discovery agree, and both say what clients look for.
