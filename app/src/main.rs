//! `adieu`: read the command line, wire the crates, shut ourselves down well.

mod config;
mod control;
mod down;
mod identity;
mod instance;
mod local_node;
mod platform;
mod up;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

fn main() -> ExitCode {
    // The shim is this same binary. It must stay small and single-threaded, so it comes before everything else.
    if let Some(code) = runtime::shim::run_if_asked() {
        return code;
    }
    let outcome = match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Image(args) => config::image_store(&args.data_dir.path)
            .and_then(|store| cli::image::run(&store, &args.command, &mut io::stdout().lock())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("adieu: {error:#}");
            ExitCode::FAILURE
        }
    }
}
