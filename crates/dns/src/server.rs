//! The resolver of a node: it listens where pods find it, on a thread of its own.
//!
//! Everything is bounded: how long a packet, an answer and a wait may be, how much one client and all together may have under way. What
//! is above the bounds is dropped or refused and counted, never queued. A flood of questions takes time from this thread, which
//! yields to others.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener, UdpSocket as StdUdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RecordType};
use kube::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::answer::{Outcome, answer};
use crate::clients::{Clients, Seat};
use crate::cluster::{Cluster, Event};
use crate::forward::{Forwarder, Source};
use crate::metrics::{Dropped, Metrics, Transport};
use crate::packet::{PacketError, Reply, Request};
use crate::records::{PodRecords, Zone, is_within};

/// What panics here are counted as.
const PART: &str = "dns";
/// The longest question that is read.
const QUESTION_MAX: usize = 4096;
/// How much the kernel keeps for us while we are busy: pods ask for many names at once when they start.
const RECEIVE_BUFFER: usize = 2 << 20;
/// How long a connection may rest, and an answer may be on its way.
const IDLE: Duration = Duration::from_secs(10);
/// How long an address may be in use by what a killed process left behind, and how often to try.
const IN_USE_WAIT_MAX: Duration = Duration::from_secs(2);
const IN_USE_RETRY: Duration = Duration::from_millis(20);
/// Before anything is tried again that the kernel could not do.
const AGAIN: Duration = Duration::from_millis(50);
const EVENTS_MAX: usize = 1024;
/// Less than the rest of the program, which ends pods.
const NICE: i32 = 5;

/// What a resolver needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The names that it knows.
    pub zone: Zone,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who may ask.
    pub clients: Vec<(IpAddr, u8)>,
    /// Addresses that lead to it besides, which are never asked for names of the world.
    pub own: Vec<IpAddr>,
    /// Where the machine's resolvers are named.
    pub resolv_conf: PathBuf,
    /// At which port these are.
    pub upstream_port: u16,
    /// Which pods have names.
    pub pod_records: PodRecords,
}

/// A resolver that listens. Dropping it ends it.
#[derive(Debug)]
pub struct Dns {
    shared: Arc<Shared>,
    address: SocketAddr,
    _stop: DropGuard,
}

struct Shared {
    zone: Zone,
    clients_from: Vec<(IpAddr, u8)>,
    pod_records: PodRecords,
    cluster: RwLock<Cluster>,
    clients: Clients,
    forwarder: Forwarder,
    metrics: Metrics,
    turn: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("zone", &self.zone).finish_non_exhaustive()
    }
}

impl Dns {
    /// Takes the address and answers there. Until it follows the API it knows no name of the cluster, and denies none.
    pub async fn open(settings: Settings) -> io::Result<Self> {
        let (udp, tcp) = bind(settings.listen).await?;
        let address = tcp.local_addr()?;
        let own = settings.own.into_iter().chain([settings.listen.ip()]);
        let shared = Arc::new(Shared {
            zone: settings.zone,
            clients_from: settings.clients,
            pod_records: settings.pod_records,
            cluster: RwLock::new(Cluster::new(settings.pod_records)),
            clients: Clients::new(descriptors()),
            forwarder: Forwarder::new(settings.resolv_conf, own, settings.upstream_port),
            metrics: Metrics::default(),
            turn: AtomicUsize::new(0),
        });
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = serve(Arc::clone(&shared), udp, tcp);
        let stopped = stop.clone();
        std::thread::Builder::new().name(PART.into()).spawn(move || {
            // Of this thread alone. One that keeps its place is no reason not to answer.
            let _ = rustix::process::setpriority_process(None, NICE);
            runtime.block_on(stopped.run_until_cancelled(serving));
        })?;
        Ok(Self { shared, address, _stop: stop.drop_guard() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Follows what there is in the cluster through `client`, for as long as this lives.
    pub fn follow(&self, client: kube::Client) {
        let (events, told) = mpsc::channel(EVENTS_MAX);
        self.follow_kind(&events, Event::Service, {
            let api = Api::all(client.clone());
            |out| client::follow_changes(api, out)
        });
        self.follow_kind(&events, Event::Slice, {
            let api = Api::all(client.clone());
            |out| client::follow_changes(api, out)
        });
        if self.shared.pod_records == PodRecords::Verified {
            self.follow_kind(&events, Event::Pod, {
                let api = Api::all(client.clone());
                |out| client::follow_changes(api, out)
            });
            self.follow_kind(&events, Event::Namespace, {
                let api = Api::all(client);
                |out| client::follow_metadata(api, out)
            });
        }
        tokio::spawn(hear(Arc::downgrade(&self.shared), told));
    }

    fn follow_kind<T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
        &self,
        events: &mpsc::Sender<Event>,
        event: impl Fn(T) -> Event + Send + 'static,
        follow: impl FnOnce(mpsc::Sender<T>) -> F,
    ) {
        let (out, mut changes) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(follow(out));
        let events = events.clone();
        tokio::spawn(async move {
            while let Some(change) = changes.recv().await {
                if events.send(event(change)).await.is_err() {
                    return;
                }
            }
        });
    }

    /// What it counts, as Prometheus reads it.
    pub fn metrics(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.metrics.page(shared.forwarder.is_up())
    }

    #[cfg(test)]
    pub(crate) fn hear(&self, event: Event) {
        self.shared.hear(event);
    }
}

async fn hear(shared: std::sync::Weak<Shared>, mut told: mpsc::Receiver<Event>) {
    while let Some(event) = told.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        shared.hear(event);
    }
}

/// How many the process may have.
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Takes both at the same port. One that is in use may be so by what a killed process left behind, and free in a moment.
async fn bind(listen: SocketAddr) -> io::Result<(StdUdpSocket, StdTcpListener)> {
    let attempt = || {
        let tcp = StdTcpListener::bind(listen)?;
        let udp = StdUdpSocket::bind(SocketAddr::new(listen.ip(), tcp.local_addr()?.port()))?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        // Without the right to it the kernel's own size has to do.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&udp, RECEIVE_BUFFER);
        io::Result::Ok((udp, tcp))
    };
    let deadline = Instant::now() + IN_USE_WAIT_MAX;
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                tokio::time::sleep(IN_USE_RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

async fn serve(shared: Arc<Shared>, udp: StdUdpSocket, tcp: StdTcpListener) {
    let (udp, tcp) = match (UdpSocket::from_std(udp), TcpListener::from_std(tcp)) {
        (Ok(udp), Ok(tcp)) => (Arc::new(udp), tcp),
        (Err(error), _) | (_, Err(error)) => return tracing::error!(%error, "cannot serve the cluster DNS"),
    };
    let packets = supervision::keep(PART, || Arc::clone(&shared).serve_packets(Arc::clone(&udp)));
    let connections = supervision::keep(PART, || Arc::clone(&shared).accept(&tcp));
    tokio::join!(packets, connections);
}

/// What becomes of a packet.
enum Step {
    Dropped(Dropped),
    Answered(Reply, Source, Request),
    Forwarded(Reply, Name, RecordType, Request, Seat),
}

impl Shared {
    fn hear(&self, event: Event) {
        self.cluster.write().unwrap_or_else(PoisonError::into_inner).hear(event);
    }

    async fn serve_packets(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut packet = [0; QUESTION_MAX];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut packet).await else {
                // No memory, most likely: some comes back.
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let packet = packet.get(..length).unwrap_or_default();
            match self.step(packet, from.ip()) {
                Step::Dropped(why) => self.metrics.dropped(why),
                Step::Answered(reply, source, request) => {
                    let packet = self.written(Transport::Udp, reply, source, &request);
                    self.send(&socket, &packet, from);
                }
                Step::Forwarded(reply, name, record_type, request, seat) => {
                    let (shared, socket) = (Arc::clone(&self), Arc::clone(&socket));
                    tokio::spawn(supervision::catch(PART, async move {
                        let (reply, source) = shared.forward(reply, &name, record_type, seat).await;
                        let packet = shared.written(Transport::Udp, reply, source, &request);
                        shared.send(&socket, &packet, from);
                    }));
                }
            }
        }
    }

    /// Nobody waits for a client that does not take its answers.
    fn send(&self, socket: &UdpSocket, packet: &[u8], to: SocketAddr) {
        if socket.try_send_to(packet, to).is_err() {
            self.metrics.dropped(Dropped::NotSent);
        }
    }

    async fn accept(self: Arc<Self>, listener: &TcpListener) {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                // No descriptors, most likely: some come back.
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            if !self.is_client(from.ip()) {
                self.metrics.dropped(Dropped::Stranger);
                continue;
            }
            let Some(seat) = self.clients.connect(from.ip(), Instant::now()) else {
                self.metrics.dropped(Dropped::Connections);
                continue;
            };
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                let _seat = seat;
                // A connection that breaks is over, whatever broke it.
                let _ = supervision::catch(PART, shared.serve_connection(stream, from.ip())).await;
            });
        }
    }

    async fn serve_connection(&self, mut stream: TcpStream, from: IpAddr) -> io::Result<()> {
        loop {
            let mut length = [0; 2];
            timeout(IDLE, stream.read_exact(&mut length)).await??;
            let length = usize::from(u16::from_be_bytes(length));
            if length > QUESTION_MAX {
                return Ok(());
            }
            let mut packet = vec![0; length];
            timeout(IDLE, stream.read_exact(&mut packet)).await??;
            let packet = match self.step(&packet, from) {
                Step::Dropped(why) => {
                    self.metrics.dropped(why);
                    return Ok(());
                }
                Step::Answered(reply, source, request) => self.written(Transport::Tcp, reply, source, &request),
                Step::Forwarded(reply, name, record_type, request, seat) => {
                    let (reply, source) = self.forward(reply, &name, record_type, seat).await;
                    self.written(Transport::Tcp, reply, source, &request)
                }
            };
            let length = u16::try_from(packet.len()).map_err(io::Error::other)?.to_be_bytes();
            timeout(IDLE, stream.write_all(&[&length[..], &packet].concat())).await??;
        }
    }

    fn is_client(&self, address: IpAddr) -> bool {
        self.clients_from.iter().any(|range| is_within(address, *range))
    }

    /// Answers what can be answered at once.
    fn step(&self, packet: &[u8], from: IpAddr) -> Step {
        let now = Instant::now();
        if !self.is_client(from) {
            return Step::Dropped(Dropped::Stranger);
        }
        if !self.clients.may_ask(from, now) {
            return Step::Dropped(Dropped::TooMany);
        }
        let request = match Request::read(packet) {
            Ok(request) => request,
            Err(PacketError::Malformed | PacketError::NotAQuery) => return Step::Dropped(Dropped::Malformed),
        };
        let outcome = {
            let cluster = self.cluster.read().unwrap_or_else(PoisonError::into_inner);
            answer(&request, &self.zone, cluster.known())
        };
        let (reply, asked) = match outcome {
            Outcome::Answered(reply) => return Step::Answered(reply, Source::Local, request),
            Outcome::Follow(reply, target) => (reply, Some(target)),
            Outcome::Forward => (Reply { authoritative: false, ..Reply::empty(ResponseCode::NoError) }, None),
        };
        let Ok(question) = request.question() else {
            return Step::Answered(Reply::empty(ResponseCode::FormErr), Source::Local, request);
        };
        let (name, record_type) = (asked.unwrap_or_else(|| question.name().clone()), question.query_type());
        if let Some(known) = self.forwarder.remembered(&name, record_type) {
            return Step::Answered(joined(reply, known), Source::Cache, request);
        }
        match self.clients.forward(from, now) {
            Some(seat) => Step::Forwarded(reply, name, record_type, request, seat),
            None => Step::Answered(Reply::empty(ResponseCode::Refused), Source::Forward, request),
        }
    }

    async fn forward(&self, reply: Reply, name: &Name, record_type: RecordType, seat: Seat) -> (Reply, Source) {
        let (found, source) = self.forwarder.ask(name, record_type).await;
        drop(seat);
        (joined(reply, found), source)
    }

    fn written(&self, transport: Transport, mut reply: Reply, source: Source, request: &Request) -> Vec<u8> {
        self.metrics.answered(transport, source, reply.code);
        reply.rotate(self.turn.fetch_add(1, Ordering::Relaxed));
        let limit = match transport {
            Transport::Udp => request.udp_limit(),
            Transport::Tcp => u16::MAX,
        };
        reply.write(request, limit)
    }
}

/// The names that led to another, and what that one leads to.
fn joined(mut reply: Reply, found: Reply) -> Reply {
    reply.answers.extend(found.answers);
    Reply { answers: reply.answers, authoritative: reply.authoritative, ..found }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
