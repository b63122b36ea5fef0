//! Scenarios of api-deletion 20 that the pure decision can tell.
