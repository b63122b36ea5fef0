//! What is made from the command line itself: completion for shells (`adieu completion`) and man pages (`adieu man`).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::Cli;

/// `adieu completion`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu completion bash > /etc/bash_completion.d/adieu
  adieu completion zsh > \"${fpath[1]}/_adieu\"
  adieu completion fish > ~/.config/fish/completions/adieu.fish")]
pub struct CompletionArgs {
    /// For which shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// `adieu man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// The folder that the pages are written to
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Writes the script that completes words of this command line.
pub fn completion(args: &CompletionArgs, out: &mut dyn Write) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(Cli::command()), "adieu", &mut script);
    Ok(out.write_all(&script)?)
}

/// Writes a page for the program and one for each command: `adieu.1`, `adieu-get.1`.
pub fn man(args: &ManArgs) -> Result<()> {
    let doing = || format!("cannot write to {}", args.dir.display());
    fs::create_dir_all(&args.dir).with_context(doing)?;
    let mut command = shown(Cli::command());
    command.build();
    pages(&command, "adieu", &args.dir).with_context(doing)
}

fn pages(command: &Command, name: &str, dir: &Path) -> std::io::Result<()> {
    let mut page = Vec::new();
    // clap keeps the name for as long as the program lasts, as it does with those that are written in the source.
    let title: &'static str = name.to_owned().leak();
    Man::new(command.clone().name(title)).render(&mut page)?;
    fs::write(dir.join(format!("{name}.1")), page)?;
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    commands.into_iter().try_for_each(|command| pages(command, &format!("{name}-{}", command.get_name()), dir))
}

/// Without what is hidden: nobody is to complete it.
fn shown(command: Command) -> Command {
    let kept: Vec<Command> = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let mut all = Command::new("adieu").version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = command.get_about() {
        all = all.about(about.clone());
    }
    all.subcommands(kept)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn completion_knows_every_command_and_none_that_is_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            completion(&CompletionArgs { shell }, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            for word in ["get", "rollout", "drain", "demo", "data-dir"] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
            assert!(!script.contains("demo-app"), "{shell}");
        }
    }

    #[test]
    fn man_page_of_each_command_is_written() {
        let dir = tempfile::tempdir().unwrap();
        man(&ManArgs { dir: dir.path().to_owned() }).unwrap();
        for page in ["adieu.1", "adieu-get.1", "adieu-rollout-undo.1", "adieu-image-ls.1"] {
            assert!(fs::read_to_string(dir.path().join(page)).unwrap().contains(".TH"), "{page}");
        }
        assert!(!dir.path().join("adieu-demo-app.1").exists());
        assert!(fs::read_to_string(dir.path().join("adieu-get.1")).unwrap().contains("of all namespaces"));
    }
}
