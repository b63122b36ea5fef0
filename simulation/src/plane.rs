//! The control plane: store, server, scheduler and controllers. With several nodes it is a process of its own, as in `adieu server`:
//! it may die alone, and whoever asks finds nobody until the next one serves.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use server::{ApiService, Identity, NoNodes, Server, ServerConfig, TokenKey};
use store::{Store, Window};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::machine::Life;
use crate::scenario::SERVER;
use crate::trace::TraceEvent;
use crate::wire::{Caller, Wire};
use crate::witness;
use crate::world::{RESTART_MS, is_excused, pause_of, words_of};

/// Resolves when a control plane is gone.
pub type Gone = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The control plane as those around it reach it, one life after the other.
#[derive(Clone)]
pub struct PlaneHandle(Arc<watch::Sender<Option<Serving>>>);

#[derive(Clone)]
struct Serving {
    life: u64,
    server: Server,
}

impl PlaneHandle {
    /// Nobody serves yet.
    pub fn unserved() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// This one serves now.
    fn serve(&self, server: Option<Server>) {
        self.0.send_modify(|serving| {
            let life = serving.as_ref().map_or(0, |before| before.life) + 1;
            *serving = server.map(|server| Serving { life, server });
        });
    }

    /// Whoever serves now, for this caller, and the end of that.
    pub fn reach(&self, identity: &Identity) -> Option<(ApiService, Gone)> {
        let serving = self.0.borrow().clone()?;
        let (life, mut news) = (serving.life, self.0.subscribe());
        let gone = async move {
            // The sender is held by whoever asks.
            let is_over = |now: &Option<Serving>| now.as_ref().is_none_or(|now| now.life != life);
            let _ = news.wait_for(is_over).await;
        };
        Some((serving.server.service_as(identity.clone()), Box::pin(gone)))
    }

    /// Whether somebody serves.
    pub fn is_served(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// Starts one that serves, and answers what it consists of. What is spawned ends with the answer.
pub async fn start(life: &Life, handle: &PlaneHandle) -> Result<JoinSet<()>, String> {
    let machine = &life.machine;
    let opened = Store::open_in_line(&machine.disk.join("store"), Window::default(), pause_of(life));
    let (store, serving) = opened.map_err(|error| format!("store: {}", words_of(&error)))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(serving);
    tasks.spawn(witness::watch(life.clone(), store.clone()));
    tasks.spawn(witness::watch_records(life.clone(), store.clone()));
    if !machine.scenario.workloads.is_empty() {
        tasks.spawn(witness::watch_jobs(life.clone(), store.clone()));
    }
    let server = Server::new(ServerConfig {
        store,
        advertise: SocketAddr::from((Ipv4Addr::LOCALHOST, 6443)),
        version: "v1.36.4+simulation".to_owned(),
        nodes: Arc::new(NoNodes),
        service_range: server::ServiceRange::default(),
        token_key: token_key(),
    });
    let server = server.await.map_err(|error| format!("server: {}", words_of(&error)))?;
    handle.serve(Some(server.clone()));
    if !machine.scenario.nodes.is_empty() {
        start_controllers(life, handle, &server, &mut tasks);
    }
    Ok(tasks)
}

/// As `adieu server` does, over a wire of their own.
fn start_controllers(life: &Life, handle: &PlaneHandle, server: &Server, tasks: &mut JoinSet<()>) {
    let client = {
        let (life, plane) = (life.clone(), handle.clone());
        move |name: &str, identity| {
            let (life, plane, caller) = (life.clone(), plane.clone(), Caller::Controller(name.into()));
            kube::Client::new(Wire { plane, identity, life, caller }, "default")
        }
    };
    let settings = controllers::Settings::default();
    let user = |name: &str| client(name, Identity::new(name, &[]));
    let (scheduler, read) = (user("system:kube-scheduler"), user("system:kube-controller-manager"));
    let schedule = move || controllers::scheduler::run(scheduler.clone(), settings);
    tasks.spawn(supervision::keep("scheduler", schedule));
    let act = move |account: &str| client(account, Identity::service_account("kube-system", account));
    let (clients, kinds) = (controllers::Clients::new(read, act), server.kinds());
    let run = move || controllers::run(clients.clone(), kinds.clone(), settings);
    tasks.spawn(supervision::keep("controllers", run));
}

/// Keeps a control plane of its own running, one life after the other.
pub async fn keep(platform: Life, handle: PlaneHandle, started: oneshot::Sender<()>) {
    let machine = Arc::clone(&platform.machine);
    let mut started = Some(started);
    loop {
        let (life, _) = platform.of_host(machine.scenario.nodes.len());
        let mut tasks = None;
        let living = async {
            match start(&life, &handle).await {
                Err(why) => return why,
                Ok(all) => tasks = Some(all),
            }
            if let Some(started) = started.take() {
                let _ = started.send(());
            }
            std::future::pending().await
        };
        let (why, crashed) = tokio::select! {
            biased;
            () = life.host_crashed() => ("it dies".to_owned(), true),
            why = living => (why, false),
        };
        handle.serve(None);
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
        if !crashed && !is_excused(&machine) {
            machine.note("-", TraceEvent::NodeFailed(format!("{SERVER}: {why}")));
        }
        life.end_host(&why);
        let down = machine.scenario.crashes.iter().filter(|crash| crash.server).map(|crash| crash.down_ms).max();
        let down = down.filter(|_| crashed).unwrap_or(RESTART_MS);
        tokio::time::sleep(Duration::from_millis(down)).await;
    }
}

/// One for all: what it signs is in no trace.
fn token_key() -> TokenKey {
    static KEY: OnceLock<TokenKey> = OnceLock::new();
    KEY.get_or_init(TokenKey::fresh).clone()
}
