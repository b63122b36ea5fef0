//! The smallest program that can serve as a shim; the product calls the same function first in its own `main`.

fn main() -> std::process::ExitCode {
    runtime::run_if_asked().unwrap_or(std::process::ExitCode::FAILURE)
}
