//! The way to the API, of nodes and of controllers: slow, and sometimes it loses a request, an answer or a watch.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use kube::client::Body as ClientBody;
use server::{BoxError, Identity};
use tokio::time::Sleep;

use crate::flaws::{self, WorldFlaw};
use crate::machine::Life;
use crate::plane::{Gone, PlaneHandle};
use crate::scenario::Profile;
use crate::trace::TraceEvent;

/// The way of one caller.
#[derive(Clone)]
pub struct Wire {
    /// Who answers.
    pub plane: PlaneHandle,
    /// As whom it asks.
    pub identity: Identity,
    /// Whose requests they are.
    pub life: Life,
    /// Who asks.
    pub caller: Caller,
}

/// Who asks.
#[derive(Clone)]
pub enum Caller {
    /// The agent of a node. Its seams are called `api.…` and counted by pod.
    Agent,
    /// A controller, by its account. Its seams are called `plane.…`.
    Controller(Arc<str>),
    /// A person, for whom nothing is slow or lost.
    User,
}

/// What a request is about: the pod in its path, or nobody.
fn who(path: &str) -> &str {
    let mut parts = path.split('/').skip_while(|part| *part != "pods");
    parts.nth(1).map_or("-", crate::machine::plan_name)
}

fn verb(request: &Request<ClientBody>) -> &'static str {
    let watches = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
    match *request.method() {
        Method::GET if watches => "watch",
        Method::GET => "get",
        Method::POST => "create",
        Method::PATCH => "patch",
        Method::PUT => "update",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// Asks for the pods of all nodes.
fn without_selector(request: &mut Request<ClientBody>) {
    let uri = request.uri();
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.starts_with("fieldSelector="));
    let query = pairs.collect::<Vec<_>>().join("&");
    if let Ok(wider) = format!("{}?{query}", uri.path()).parse() {
        *request.uri_mut() = wider;
    }
}

impl tower::Service<Request<ClientBody>> for Wire {
    type Response = Response<CutBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<ClientBody>) -> Self::Future {
        let Self { plane, identity, life, caller } = self.clone();
        if flaws::has(WorldFlaw::HearsEverybody) && matches!(caller, Caller::Agent) {
            without_selector(&mut request);
        }
        Box::pin(async move {
            let (verb, path) = (verb(&request), request.uri().path().to_owned());
            // Which of several asks, and who it is about: seams of a pod are counted by pod, those of a controller by controller.
            let (part, who, from) = match &caller {
                Caller::Agent if life.machine.scenario.nodes.is_empty() => {
                    ("api", who(&path).to_owned(), String::new())
                }
                Caller::Agent => ("api", who(&path).to_owned(), format!("{} ", life.host_name())),
                Caller::Controller(name) => ("plane", (**name).to_owned(), format!("{name} ")),
                Caller::User => ("user", String::new(), String::new()),
            };
            let place = format!("{part}.{verb}");
            let is_user = matches!(caller, Caller::User);
            // Events are told now and then, by nobody in particular, and nobody waits for them.
            let is_event = path.contains("/events") || is_user;
            if !is_event {
                life.seam(&place, &who).await;
            }
            let lossy = life.machine.scenario.profile == Profile::Lossy && !is_event;
            let mut chance = life.chance(&place, &who);
            let (loses_request, loses_answer) = (lossy && chance.once_in(12), lossy && chance.once_in(12));
            let subject = if part == "plane" { "-" } else { who.as_str() };
            let words = |end: &str| TraceEvent::Request(format!("{from}{verb} {path} {end}"));
            if loses_request {
                life.machine.note(subject, words("is lost"));
                return Err("the request is lost".into());
            }
            let Some((mut api, mut gone)) = plane.reach(&identity) else {
                return Err("nobody listens: the server is down".into());
            };
            let answer = tokio::select! {
                biased;
                () = &mut gone => return Err("the server is gone".into()),
                answer = api.call(request) => answer,
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            if !is_event {
                life.seam(&format!("{place}.answered"), &who).await;
            }
            if loses_answer {
                life.machine.note(subject, words("is not answered"));
                return Err("the answer is lost".into());
            }
            if !is_user {
                life.machine.note(subject, words(&format!("-> {}", answer.status().as_u16())));
            }
            let is_watch = verb == "watch" && !is_user;
            // A controller follows two dozen kinds: each of its watches lasts longer than those of a node.
            let lasts = if part == "plane" { 12_000 } else { 3_000 };
            let cut = (lossy && is_watch && chance.once_in(2)).then(|| chance.below(lasts));
            let cut = cut.map(|ms| Box::pin(tokio::time::sleep(Duration::from_millis(ms))));
            let echoes = life.machine.scenario.profile == Profile::Echo;
            let watcher = match caller {
                Caller::Controller(name) => Watcher { place: "plane.watch", who: name, is_node: false },
                Caller::Agent | Caller::User => {
                    Watcher { place: "api.watch", who: life.nobody().into(), is_node: true }
                }
            };
            Ok(answer.map(|body| CutBody {
                body,
                cut,
                gone,
                life,
                watcher,
                is_watch,
                echoes,
                coming: None,
                held: None,
                again: VecDeque::new(),
            }))
        })
    }
}

/// Whose watch it is.
struct Watcher {
    place: &'static str,
    who: Arc<str>,
    is_node: bool,
}

/// How long something is under way.
type Way = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long something that is overtaken is held back at most.
const HELD: Duration = Duration::from_millis(40);

/// An answer that may be cut off, and a watch that may say things twice and let one object's news overtake another's.
pub struct CutBody {
    body: server::Body,
    cut: Option<Pin<Box<Sleep>>>,
    gone: Gone,
    life: Life,
    watcher: Watcher,
    is_watch: bool,
    echoes: bool,
    /// What was sent and is not here yet.
    coming: Option<(Frame<Bytes>, Way)>,
    /// What waits to be overtaken.
    held: Option<(Bytes, Pin<Box<Sleep>>)>,
    /// What is said next.
    again: VecDeque<Bytes>,
}

/// Which object a part of a watch is about; nobody knows of what is not exactly one event.
fn object_of(line: &[u8]) -> Option<String> {
    let event: serde_json::Value = serde_json::from_slice(line).ok()?;
    if !matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED" | "DELETED")) {
        return None;
    }
    event["object"]["metadata"]["uid"].as_str().map(str::to_owned)
}

impl CutBody {
    fn heard(&self, data: &Bytes) -> Frame<Bytes> {
        if self.watcher.is_node {
            crate::witness::heard(&self.life, data);
        }
        Frame::data(data.clone())
    }

    /// What is said of what came: perhaps nothing yet, perhaps twice. One object's news never overtake each other.
    fn echo(&mut self, data: Bytes) {
        let mut chance = self.life.chance(&format!("{}.echo", self.watcher.place), &self.watcher.who);
        let (twice, holds) = (chance.once_in(3), chance.once_in(3));
        let object = object_of(&data);
        if let Some((before, _)) = self.held.take() {
            if object.is_some() && object_of(&before) != object {
                self.again.push_back(data);
                self.again.push_back(before);
                return;
            }
            self.again.push_back(before);
        } else if holds && object.is_some() {
            self.held = Some((data, Box::pin(tokio::time::sleep(HELD))));
            return;
        }
        self.again.push_back(data.clone());
        if twice && object.is_some() {
            let is_end = flaws::has(WorldFlaw::TakesEchoForEnd);
            let text = String::from_utf8_lossy(&data).replacen("\"MODIFIED\"", "\"DELETED\"", 1);
            self.again.push_back(if is_end { text.into() } else { data });
        }
    }
}

impl http_body::Body for CutBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(cut) = &mut self.cut
            && cut.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err("the watch is cut".into())));
        }
        if self.gone.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err("the server is gone".into())));
        }
        if !self.is_watch {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        if let Some(data) = self.again.pop_front() {
            return Poll::Ready(Some(Ok(self.heard(&data))));
        }
        if let Some((data, wait)) = &mut self.held
            && wait.as_mut().poll(context).is_ready()
        {
            let data = data.clone();
            self.held = None;
            return Poll::Ready(Some(Ok(self.heard(&data))));
        }
        if self.coming.is_none() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    let life = self.life.clone();
                    let (place, who) = (format!("{}.frame", self.watcher.place), Arc::clone(&self.watcher.who));
                    let way = Box::pin(async move { drop(life.seam(&place, &who).await) });
                    self.coming = Some((frame, way));
                }
                Poll::Ready(None) => {
                    // What was held back comes before the end.
                    let held = self.held.take();
                    return Poll::Ready(held.map(|(data, _)| Ok(self.heard(&data))));
                }
                other @ (Poll::Ready(_) | Poll::Pending) => return other,
            }
        }
        let Some((_, way)) = &mut self.coming else { return Poll::Pending };
        if way.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let Some((frame, _)) = self.coming.take() else { return Poll::Pending };
        let Some(data) = frame.data_ref().cloned() else { return Poll::Ready(Some(Ok(frame))) };
        if self.echoes {
            self.echo(data);
            return self.poll_frame(context);
        }
        Poll::Ready(Some(Ok(self.heard(&data))))
    }
}
