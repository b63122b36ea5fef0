//! The two doors, kind by kind.
