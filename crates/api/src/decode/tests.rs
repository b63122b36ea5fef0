//! Bodies as clients send them.
