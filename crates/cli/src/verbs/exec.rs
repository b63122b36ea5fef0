//! `adieu exec`: a command in a container, with or without a terminal. One WebSocket carries its streams
//! (`v5.channel.k8s.io`: the first byte of a message is its channel).

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::pods;
use super::requests::Call;
use super::select;
use crate::cluster::{Cluster, ClusterArgs};

/// In the order in which they are liked.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const OUTCOME: u8 = 3;
const RESIZE: u8 = 4;
/// Tells that a stream has ended (v5).
const CLOSE: u8 = 255;
/// What is read of standard input at a time.
const PIECE_BYTES: usize = 32 << 10;
/// A refusal is not longer.
const REFUSAL_BYTES_MOST: usize = 64 << 10;

/// `adieu exec`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu exec web-1 -- ls /etc
  adieu exec -it web-1 -- sh                  with a terminal
  adieu exec deploy/web -c sidecar -- env
  tar c . | adieu exec -i web-1 -- tar x -C /tmp

Exits with what the command exits with.")]
pub struct ExecArgs {
    /// A pod, or what has pods: NAME, pod/NAME, deploy/NAME
    #[arg(value_name = "POD")]
    pub what: String,
    /// The command and its words
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// In which container [default: the first, or the one that the pod names as its default]
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// With a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Print nothing of one's own
    #[arg(short, long)]
    pub quiet: bool,
}

/// Runs the command; the exit code is its own.
pub(crate) async fn run(args: &ExecArgs, cluster: &Cluster) -> Result<ExitCode> {
    let pod = pods::one_of(cluster, &args.what).await?;
    let name = select::name(&pod);
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    ensure!(!matches!(phase, "Succeeded" | "Failed"), "cannot exec into pod/{name}: it has ended ({phase})");
    let container = pods::container(&pod, args.container.as_deref())?;
    let with_terminal = args.tty && args.stdin && io::stdin().is_terminal();
    if args.tty && !with_terminal && !args.quiet {
        super::get::eprint_line("standard input is no terminal; the command gets none either");
    }
    let tty = with_terminal;
    let mut call =
        Call::new(Method::GET, pods::path(&pod, &cluster.namespace, "exec")?, format!("exec into pod/{name}"))
            .query("container", container)
            .query("stdout", "true")
            .maybe("stdin", args.stdin.then_some("true"))
            .maybe("stderr", (!tty).then_some("true"))
            .maybe("tty", tty.then_some("true"));
    for word in &args.command {
        call = call.query("command", word.as_str());
    }
    let (socket, closes) = connect(cluster, &call, name).await?;
    let _raw = if tty { Some(RawTerminal::enter()?) } else { None };
    let status = converse(socket, args.stdin, tty, closes).await?;
    judge(&status)
}

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// The socket, and whether it can tell the end of a stream.
async fn connect(cluster: &Cluster, call: &Call, pod: &str) -> Result<(Socket, bool)> {
    let mut request = call.request()?.map(Body::from);
    let key = generate_key();
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_str(&key)?);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(&PROTOCOLS.join(", "))?);
    let doing = format!("exec into pod/{pod}");
    let answer = cluster.client.send(request).await.map_err(|error| cluster.explain(error, &doing))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let code = answer.status();
        let whole = Limited::new(answer.into_body(), REFUSAL_BYTES_MOST).collect().await;
        let said = whole.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message =
            serde_json::from_slice::<Value>(&said).ok().and_then(|status| Some(status["message"].as_str()?.to_owned()));
        bail!("cannot {doing}: {}", message.unwrap_or_else(|| code.to_string()));
    }
    let chosen =
        answer.headers().get(SEC_WEBSOCKET_PROTOCOL).and_then(|chosen| chosen.to_str().ok()).unwrap_or_default();
    ensure!(PROTOCOLS.contains(&chosen), "cannot {doing}: the server speaks none of {}", PROTOCOLS.join(", "));
    let closes = chosen == PROTOCOLS[0];
    let upgraded = hyper::upgrade::on(answer).await.with_context(|| format!("cannot {doing}"))?;
    Ok((WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await, closes))
}

/// Passes streams on until the command has ended; answers how, as the server says it.
async fn converse(socket: Socket, stdin: bool, tty: bool, closes: bool) -> Result<Value> {
    let (mut to, mut from) = socket.split();
    let (tell, mut told) = mpsc::channel::<Vec<u8>>(16);
    if stdin {
        let tell = tell.clone();
        std::thread::spawn(move || read_stdin(&tell, closes));
    }
    if tty {
        tokio::spawn(tell_sizes(tell.clone()));
    }
    let mut outcome = Value::Null;
    loop {
        tokio::select! {
            Some(message) = told.recv() => {
                // Who has ended does not listen any more.
                let _ = to.send(Message::Binary(message.into())).await;
            }
            message = from.next() => {
                let message = match message {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Close(_))) | None => break,
                    Some(Ok(_)) => continue,
                    Some(Err(_)) if !outcome.is_null() => break,
                    Some(Err(error)) => return Err(error).context("the connection broke"),
                };
                match message.split_first() {
                    Some((&STDOUT, text)) => { io::stdout().write_all(text)?; io::stdout().flush()?; }
                    Some((&STDERR, text)) => { io::stderr().write_all(text)?; io::stderr().flush()?; }
                    Some((&OUTCOME, text)) => outcome = serde_json::from_slice(text).context("the outcome cannot be read")?,
                    _ => {}
                }
            }
        }
    }
    let _ = to.close().await;
    Ok(outcome)
}

/// Runs in a thread of its own: nobody can be called off who waits for keys.
fn read_stdin(tell: &mpsc::Sender<Vec<u8>>, closes: bool) {
    let mut stdin = io::stdin().lock();
    let mut part = vec![0; PIECE_BYTES];
    while let Ok(count) = stdin.read(&mut part) {
        if count == 0 {
            break;
        }
        if tell.blocking_send([&[STDIN], &part[..count]].concat()).is_err() {
            return;
        }
    }
    if closes {
        let _ = tell.blocking_send(vec![CLOSE, STDIN]);
    }
}

/// Tells the size of the terminal, now and whenever it changes.
async fn tell_sizes(tell: mpsc::Sender<Vec<u8>>) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else { return };
    loop {
        if let Ok(size) = tcgetwinsize(io::stdin().as_fd()) {
            let size = json!({ "Width": size.ws_col, "Height": size.ws_row }).to_string();
            if tell.send([&[RESIZE], size.as_bytes()].concat()).await.is_err() {
                return;
            }
        }
        if changes.recv().await.is_none() {
            return;
        }
    }
}

/// A terminal that passes every key on, as it was again when this goes.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn enter() -> Result<Self> {
        let before = tcgetattr(io::stdin().as_fd()).context("cannot read how the terminal is set")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &raw).context("cannot set the terminal")?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Drain, &self.before);
    }
}

/// The exit code of the command, from the status that ends the conversation.
fn judge(status: &Value) -> Result<ExitCode> {
    if status["status"] == "Success" {
        return Ok(ExitCode::SUCCESS);
    }
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let code: Option<i64> =
        causes.filter(|cause| cause["reason"] == "ExitCode").find_map(|cause| cause["message"].as_str()?.parse().ok());
    match (code, status["message"].as_str()) {
        (Some(code), _) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX).max(u8::from(code != 0)))),
        (None, Some(message)) => bail!("{message}"),
        (None, None) => bail!("the connection ended before the command did"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn exit_code_of_a_command_is_the_one_of_its_status() {
        let failure = |code: &str| {
            json!({ "status": "Failure", "message": "command terminated with exit code",
            "details": { "causes": [{ "reason": "ExitCode", "message": code }] } })
        };
        let shown = |status: &Value| judge(status).map(|code| format!("{code:?}")).unwrap();
        assert_eq!(shown(&json!({ "status": "Success" })), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(shown(&failure("7")), format!("{:?}", ExitCode::from(7)));
        assert_eq!(shown(&failure("300")), format!("{:?}", ExitCode::from(255)), "never success");
        assert!(judge(&json!({ "status": "Failure", "message": "no such container" })).is_err());
        assert!(judge(&Value::Null).is_err());
    }
}
