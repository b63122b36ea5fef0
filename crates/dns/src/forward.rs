//! Names of the world, asked of the machine's own resolvers.
//!
//! The library sends, repeats, goes over to TCP and asks each question once however many wait for it. Its cache is not used: it is
//! bounded by the number of answers, not by their size.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::cache::Cache;
use crate::packet::{Reply, UDP_MAX};

/// How long one try takes, and all of them: a client that waits five seconds still hears that nobody answers.
const TRY: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(4);
/// How old what is known of the machine's file may be.
const FILE_READ: Duration = Duration::from_secs(5);
/// How many questions may be under way to one of them; the clients have limits of their own.
const ACTIVE_MAX: usize = 1024;

/// Who answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    Local,
    Forward,
    Cache,
}

/// The machine's resolvers, as its file says.
#[derive(Default)]
struct Upstream {
    read_at: Option<Instant>,
    servers: Vec<IpAddr>,
    /// None if there is nobody to ask.
    resolver: Option<TokioResolver>,
    /// Whether the last answer was one; what was told of it.
    is_broken: bool,
}

/// Asks the machine's resolvers.
pub(crate) struct Forwarder {
    file: PathBuf,
    /// Where we are: never asked.
    own: BTreeSet<IpAddr>,
    port: u16,
    upstream: Mutex<Upstream>,
    cache: Mutex<Cache>,
}

impl Forwarder {
    /// Asks whom `file` names at `port`, but for `own`.
    pub(crate) fn new(file: PathBuf, own: impl IntoIterator<Item = IpAddr>, port: u16) -> Self {
        Self { file, own: own.into_iter().collect(), port, upstream: Mutex::default(), cache: Mutex::default() }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upstream(&self) -> MutexGuard<'_, Upstream> {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the machine's resolvers answer, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        !self.upstream().is_broken
    }

    /// What is remembered.
    pub(crate) fn remembered(&self, name: &Name, record_type: RecordType) -> Option<Reply> {
        self.cache().get(&Query::query(name.clone(), record_type), Instant::now())
    }

    /// Asks, within a bound.
    pub(crate) async fn ask(&self, name: &Name, record_type: RecordType) -> (Reply, Source) {
        let query = Query::query(name.clone(), record_type);
        let resolver = self.resolver();
        let asked = async {
            match resolver {
                Some(resolver) => resolver.lookup(name.clone(), record_type).await,
                None => Err(NetError::NoConnections),
            }
        };
        let answered = tokio::time::timeout(DEADLINE, asked).await.unwrap_or(Err(NetError::Timeout));
        match read(answered) {
            Ok(reply) => {
                self.tell(None);
                self.cache().put(&query, &reply, Instant::now());
                (reply, Source::Forward)
            }
            Err(error) => {
                // One that answers that it cannot say is there.
                let is_answer = matches!(error, NetError::Dns(_));
                self.tell((!is_answer).then_some(&error));
                match self.cache().get_stale(&query, Instant::now()) {
                    Some(reply) => (reply, Source::Cache),
                    None => (Reply { authoritative: false, ..Reply::empty(ResponseCode::ServFail) }, Source::Forward),
                }
            }
        }
    }

    /// Says once that nobody answers, and once that somebody does.
    fn tell(&self, error: Option<&NetError>) {
        let mut upstream = self.upstream();
        let was_broken = std::mem::replace(&mut upstream.is_broken, error.is_some());
        let servers = upstream.servers.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        match error {
            Some(error) if !was_broken => {
                warn!(servers, %error, "the machine's resolvers do not answer: pods find no names outside the cluster");
            }
            None if was_broken => info!(servers, "the machine's resolvers answer again"),
            _ => {}
        }
    }

    /// The resolvers that the file names, read anew if it is a while ago.
    fn resolver(&self) -> Option<TokioResolver> {
        let now = Instant::now();
        let mut upstream = self.upstream();
        if upstream.read_at.is_none_or(|at| now.saturating_duration_since(at) >= FILE_READ) {
            let is_first = upstream.read_at.replace(now).is_none();
            let named = servers(&std::fs::read(&self.file).unwrap_or_default());
            let servers: Vec<IpAddr> = named.iter().filter(|server| !self.own.contains(server)).copied().collect();
            if is_first || servers != upstream.servers {
                if servers.len() < named.len() {
                    warn!(file = %self.file.display(), "names the cluster DNS itself, which is not asked");
                }
                upstream.resolver = make(&servers, self.port);
                upstream.servers = servers;
            }
        }
        upstream.resolver.clone()
    }
}

/// The name servers of a `resolv.conf`.
fn servers(text: &[u8]) -> Vec<IpAddr> {
    let Ok((config, _)) = parse_resolv_conf(text) else { return Vec::new() };
    config.name_servers().iter().map(|server| server.ip).collect()
}

fn make(servers: &[IpAddr], port: u16) -> Option<TokioResolver> {
    if servers.is_empty() {
        return None;
    }
    let at = |server: &IpAddr| {
        let mut server = NameServerConfig::udp_and_tcp(*server);
        server.connections.iter_mut().for_each(|connection| connection.port = port);
        server
    };
    let config = ResolverConfig::from_name_servers(servers.iter().map(at).collect());
    let mut options = ResolverOpts::default();
    options.timeout = TRY;
    options.attempts = 1;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.max_active_requests = ACTIVE_MAX;
    options.edns_payload_len = UDP_MAX;
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options).build().ok()
}

/// An answer of others as ours. That there is nothing is an answer, too.
fn read(answered: Result<hickory_resolver::lookup::Lookup, NetError>) -> Result<Reply, NetError> {
    let empty = |code| Reply { authoritative: false, ..Reply::empty(code) };
    match answered {
        Ok(lookup) => {
            let [answers, authority, additional] =
                [lookup.answers(), lookup.authorities(), lookup.additionals()].map(<[Record]>::to_vec);
            Ok(Reply { answers, authority, additional, ..empty(ResponseCode::NoError) })
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) => {
            let soa = nothing.soa.map(|soa| Record::from_rdata(soa.name.clone(), soa.ttl, RData::SOA(soa.data)));
            Ok(Reply { authority: soa.into_iter().collect(), ..empty(nothing.response_code) })
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [DN-38] [DN-39]
    #[tokio::test(start_paused = true)]
    async fn machines_file_is_followed_and_ourselves_are_never_asked() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let write = |text: &str| std::fs::write(file.path(), text).expect("it is written");
        let own: IpAddr = [10, 86, 0, 1].into();
        let forwarder = Forwarder::new(file.path().to_owned(), [own], 53);
        let servers = || forwarder.resolver().map(|_| forwarder.upstream().servers.clone());
        write("nameserver 10.86.0.1\nsearch x\n");
        assert_eq!(servers(), None);
        write("nameserver 10.86.0.1\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n");
        assert_eq!(servers(), None, "it was read a moment ago");
        tokio::time::advance(FILE_READ).await;
        assert_eq!(servers(), Some(vec![[192, 0, 2, 1].into(), "2001:db8::1".parse().expect("an address")]));
        write("nonsense\0\n");
        tokio::time::advance(FILE_READ).await;
        assert_eq!(servers(), None);
    }

    #[tokio::test]
    async fn question_fails_at_once_when_there_is_nobody_to_ask() {
        let forwarder = Forwarder::new("/nowhere".into(), [], 53);
        assert!(forwarder.is_up());
        let (reply, _) = forwarder.ask(&Name::from_ascii("example.org.").expect("a name"), RecordType::A).await;
        assert_eq!((reply.code, forwarder.is_up()), (ResponseCode::ServFail, false));
    }
}
