//! Rows as `kubectl get` shows them.
