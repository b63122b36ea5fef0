//! `adieu demo-app drill`: what the client pod of a drill runs. Sends requests until TERM comes and prints the counts, a line of
//! JSON each time, so that whoever follows its log knows them.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::load::{self, Counts, LoadPlan};

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection is kept, if the server keeps it.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// A client sends at most so many requests a second.
const RATE_OF_ONE: u32 = 10;
/// So many clients of a kind are enough.
const CLIENTS_MOST: u32 = 64;
/// The last line is to be read by somebody: a log may end with its container.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How clients use their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Connections {
    /// A connection for every request.
    New,
    /// Connections that are kept for as long as they last.
    Kept,
    /// Half of the requests each way.
    Both,
}

impl Connections {
    /// As it is typed.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Kept => "kept",
            Self::Both => "both",
        }
    }
}

/// `adieu demo-app drill`.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Where the requests go.
    pub address: SocketAddr,
    /// Their `Host`.
    #[arg(long)]
    pub host: String,
    /// Their path.
    #[arg(long)]
    pub path: String,
    /// How many a second.
    #[arg(long)]
    pub rate: u32,
    /// On which connections.
    #[arg(long)]
    pub connections: Connections,
}

impl ClientArgs {
    /// The load that these ask for: the rate is shared by as many clients as can keep it up while some of them wait.
    pub(super) fn plan(&self) -> LoadPlan {
        let rate = match self.connections {
            Connections::New | Connections::Kept => self.rate,
            Connections::Both => self.rate.div_ceil(2),
        }
        .max(1);
        let clients = (rate / RATE_OF_ONE).clamp(1, CLIENTS_MOST);
        let of = |is_meant: bool| if is_meant { usize::try_from(clients).unwrap_or(1) } else { 0 };
        LoadPlan {
            address: self.address,
            host: self.host.clone(),
            path: self.path.clone(),
            new: of(self.connections != Connections::Kept),
            kept: of(self.connections != Connections::New),
            downloading: 0,
            every: Some(Duration::from_secs(1) * clients / rate),
            kept_for: KEPT_FOR,
            patience: PATIENCE,
        }
    }
}

/// Asks until told to stop.
pub(crate) async fn run(args: &ClientArgs, told_to_stop: impl Future<Output = ()>) -> Result<()> {
    let print = |counts: &Counts| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(counts)?)
            .and_then(|()| out.flush())
            .context("nobody reads the counts")
    };
    load::run(args.plan(), told_to_stop, print).await?;
    tokio::time::sleep(LAST_WORDS).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: u32, connections: Connections) -> LoadPlan {
        let (host, path) = ("web".to_owned(), "/".to_owned());
        ClientArgs { address: SocketAddr::from(([127, 0, 0, 1], 80)), host, path, rate, connections }.plan()
    }

    #[test]
    fn rate_is_shared_by_the_clients_of_each_kind() {
        for (rate, connections) in
            [(1, Connections::New), (7, Connections::Both), (200, Connections::Both), (5000, Connections::Kept)]
        {
            let plan = plan(rate, connections);
            let every = plan.every.expect("a pace").as_secs_f64();
            let asked = f64::from(u32::try_from(plan.new + plan.kept).expect("few")) / every;
            assert!((asked - f64::from(rate)).abs() <= 1.01, "{rate} {connections:?}: {asked}");
        }
        assert_eq!((plan(10, Connections::New).kept, plan(10, Connections::Kept).new), (0, 0));
    }
}
