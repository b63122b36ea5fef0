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
mod network_policy;
mod node_command;
mod node_renewal;
mod notify;
mod output;
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

use anyhow::{Context as _, Result};
use clap::Parser;
use cli::cluster::{Cluster, ClusterArgs, Environment};
use cli::demo::{DemoArgs, Surroundings};
use cli::drill::DrillArgs;
use cli::plan::{Misuse, Outcome, Paint, PlanArgs};
use cli::verbs::{self, Build, Verb};
use cli::{Cli, Command, Screen};
use jiff::Timestamp;

use crate::config::VERSION;

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
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Store(args) => store_command::run(&args),
        Command::Image(args) => output::to_reader(|mut out| {
            let images = config::images(&args.data_dir.path, args.command.brings())?;
            cli::image::run(&images, &args.command, &mut out, Screen::of_stderr(), Timestamp::now())?;
            Ok(ExitCode::SUCCESS)
        }),
        Command::Plan(args) => plan(&args),
        Command::Why(args) => ask(&args.cluster.clone(), async |cluster| {
            cli::why::run(&cluster, &args, jiff::Timestamp::now(), &mut io::stdout()).await
        }),
        Command::Timeline(args) => {
            ask(&args.cluster.clone(), async |cluster| cli::timeline::run(&cluster, &args, &mut io::stdout()).await)
        }
        Command::Ui(args) => {
            ask(&args.cluster.clone(), async |cluster| cli::ui::run(&cluster, &args, &mut io::stdout()).await)
        }
        Command::Drill(args) => drill(&args),
        Command::Verb(verb) => verb_of_day(&verb),
        Command::Completion(args) => output::to_reader(|out| {
            cli::reference::completion(&args, out)?;
            Ok(ExitCode::SUCCESS)
        }),
        Command::Man(args) => cli::reference::man(&args).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => demo(&args),
        Command::DemoApp(args) => cli::demo::app::run(&args, &env::var("HOSTNAME").unwrap_or_default()),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Does something with a cluster.
fn ask(args: &ClusterArgs, what: impl AsyncFnOnce(Cluster) -> Result<()>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        let environment =
            Environment { kubeconfig: env::var_os("KUBECONFIG"), home: env::var_os("HOME").map(Into::into) };
        what(args.connect(&environment).await?).await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn complain(error: &anyhow::Error) {
    logging::stderr().say(format!("adieu: {error:#}\n").as_bytes());
}

/// Colours are for terminals, unless whoever sits there says `NO_COLOR`.
pub(crate) fn wants_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && env::var_os("NO_COLOR").is_none_or(|said| said.is_empty())
}

/// A command that talks to a cluster.
fn verb_of_day(verb: &Verb) -> Result<ExitCode> {
    let environment = Environment { kubeconfig: env::var_os("KUBECONFIG"), home: env::home_dir() };
    let context =
        verbs::Context { environment: &environment, build: Build { git_version: VERSION }, now: Timestamp::now };
    output::to_reader(|out| verbs::run(verb, context, out))
}

fn demo(args: &DemoArgs) -> Result<ExitCode> {
    instance::require_root()?;
    let program = env::current_exe().context("cannot find this program")?;
    let surroundings = Surroundings { program: &program, screen: Screen::of(&io::stdout()), now: Timestamp::now };
    cli::demo::run(args, surroundings, io::stdout())
}

fn drill(args: &DrillArgs) -> Result<ExitCode> {
    let environment = Environment { kubeconfig: env::var_os("KUBECONFIG"), home: env::home_dir() };
    let program = env::current_exe().context("cannot find this program")?;
    let surroundings = cli::drill::Surroundings {
        environment: &environment,
        program: &program,
        is_root: instance::require_root().is_ok(),
        screen: Screen::of_stderr(),
        now: Timestamp::now,
    };
    output::to_reader(|out| cli::drill::run(args, surroundings, out))
}

fn plan(args: &PlanArgs) -> Result<ExitCode> {
    let paint = Paint { colours: wants_colours(&io::stdout()) };
    let outcome = match cli::plan::object_of(args) {
        None => cli::plan::run(args, &mut io::stdin().lock(), &mut io::stdout().lock(), paint),
        Some(name) => {
            let environment = Environment { kubeconfig: env::var_os("KUBECONFIG"), home: env::home_dir() };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("cannot start the async runtime")?.block_on(async {
                let cluster = args.cluster.connect(&environment).await?;
                cli::plan::run_live(args, &cluster, &name, &mut io::stdout().lock(), paint).await
            })
        }
    };
    match outcome {
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
