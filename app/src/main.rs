//! `adieu`: read the command line, wire the crates, shut ourselves down well.

mod cluster_dns;
mod config;
mod control;
mod control_plane;
mod data_dir;
mod dbus;
mod down;
mod endpoint;
mod instance;
mod local_node;
mod logind;
mod machine;
mod membership;
mod memory;
mod node_command;
mod node_renewal;
mod notify;
mod platform;
mod server_command;
mod status;
mod stop;
mod store_command;
mod traffic;
mod up;

use std::env;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use cli::plan::{Misuse, Outcome, Paint, PlanArgs};
use cli::{Cli, Command, Screen};

fn main() -> ExitCode {
    // The shim, and who unpacks layers, are this same binary. They must stay small and single-threaded, so they come before
    // everything else.
    if let Some(code) = runtime::run_if_asked() {
        return code;
    }
    runtime::memory::keep_heaps_small();
    logging::log_panics();
    supervision::count_panics();
    let code = run();
    logging::flush(logging::LAST_LINES);
    code
}

fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Up(args) => up::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Server(args) => server_command::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Node(args) => node_command::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Down(args) => down::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Status(args) => status::run(&args),
        Command::Store(args) => store_command::run(&args),
        Command::Image(args) => config::images(&args.data_dir.path)
            .and_then(|images| cli::image::run(&images, &args.command, &mut io::stdout().lock(), Screen::of_stderr()))
            .map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn complain(error: &anyhow::Error) {
    logging::stderr().say(format!("adieu: {error:#}\n").as_bytes());
}

/// Colours are for terminals, unless whoever sits there says `NO_COLOR`.
pub(crate) fn wants_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("NO_COLOR").is_none_or(|said| said.is_empty())
}

fn plan(args: &PlanArgs) -> Result<ExitCode> {
    let colours = wants_colours(&io::stdout());
    match cli::plan::run(args, &mut io::stdin().lock(), &mut io::stdout().lock(), Paint { colours }) {
        Ok(Outcome::Planned) => Ok(ExitCode::SUCCESS),
        Ok(Outcome::Refused) => Ok(ExitCode::from(3)),
        // As of any other mistake in the command line.
        Err(error) if error.is::<Misuse>() => {
            complain(&error);
            Ok(ExitCode::from(2))
        }
        Err(error) => Err(error),
    }
}
