//! The seam to whoever steers the traffic of pods.
//!
//! The rules of life say when new connections are kept away from a pod, when that is evident, and how long those that are open
//! are waited for. This is how their asks reach whoever can do it, and how the news comes back. What is not here: anything that
//! steers. Where nothing does, [`NoTraffic`] says so, and the rules go on without.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Cut, Input, Moment, Routes, TrafficNews};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::driver::Answers;

/// What a worker asks about the traffic of its pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrafficRequest {
    /// Keep new connections away. Answered by `CutDone`, and by further evidence (acknowledgements) as it comes.
    Cut(Cut),
    /// Tell when no connection waits to be accepted. Answered by `Settled`.
    AwaitSettled,
    /// Tell the application that its connections are waited for, and until when. Not answered.
    NotifyDrain {
        /// When they are waited for no longer.
        until: Moment,
    },
    /// Tell how many connections are open, now and whenever that changes. Answered by `Connections`.
    WatchConnections,
    /// Let new connections come again. Not answered.
    Restore,
}

/// Who steers the traffic of this node's pods.
pub trait Traffic: fmt::Debug + Send + Sync {
    /// Begins to do what the worker of `pod` asks. The future goes on for as long as there may be news, and is dropped when
    /// the pod is gone. What was asked for may be asked again after a restart.
    fn perform(&self, pod: Pod, request: TrafficRequest, reporter: TrafficReporter) -> BoxFuture<'static, ()>;

    /// Tells how connections reach the pod (`Routed`), now and whenever that changes. The future is polled for as long as the
    /// pod has a driver. `pod` is its object as last seen.
    fn follow(&self, pod: watch::Receiver<Arc<Pod>>, reporter: TrafficReporter) -> BoxFuture<'static, ()>;

    /// The pod is asked to leave: who lists it from now on sends it no new connections while others can take them. Answers how it is
    /// reached at this moment, if that is known: what was told may be older.
    fn leaves(&self, pod: &Pod) -> Option<Routes>;

    /// Lets packets of a pod pass that has got these addresses. Answered when the rules that hold for it are in force, and until then
    /// nothing of the pod is started; else with a sentence why they are not, and it is asked again with the next try.
    fn admit(&self, pod: &Pod, addresses: &[IpAddr]) -> BoxFuture<'static, Result<(), String>> {
        let (_, _) = (pod, addresses);
        futures::future::ready(Ok(())).boxed()
    }

    /// A leaving pod's barrier was opened, for this reason (the reason of its condition `adieu.dev/TrafficDrained`).
    fn released(&self, reason: &str);

    /// Nothing of the pod is left on this node: whoever still sends to it needs another answer.
    fn departed(&self, pod: &Pod);
}

/// Tells a worker the news of its pod's traffic.
#[derive(Clone, Debug)]
pub struct TrafficReporter(Listener);

#[derive(Clone, Debug)]
enum Listener {
    /// The life of the driver that asked.
    Asker(Answers),
    /// The driver in whatever life: what is told is true whoever asked.
    Driver(Answers),
    Channel(mpsc::Sender<TrafficNews>),
}

impl TrafficReporter {
    pub(crate) fn new(answers: Answers) -> Self {
        Self(Listener::Asker(answers))
    }

    pub(crate) fn of_driver(answers: Answers) -> Self {
        Self(Listener::Driver(answers))
    }

    /// One that has the news sent here, for those who test who steers.
    pub fn to_channel(news: mpsc::Sender<TrafficNews>) -> Self {
        Self(Listener::Channel(news))
    }

    /// Tells it. A worker that is gone needs none.
    pub async fn report(&self, news: TrafficNews) {
        match &self.0 {
            Listener::Asker(answers) => answers.send(Input::Traffic(news)).await,
            Listener::Driver(answers) => answers.tell(Input::Traffic(news)).await,
            Listener::Channel(channel) => drop(channel.send(news).await),
        }
    }
}

/// Nobody steers traffic: whoever asks is told so at once.
#[derive(Clone, Copy, Debug)]
pub struct NoTraffic;

impl Traffic for NoTraffic {
    fn perform(&self, _: Pod, request: TrafficRequest, reporter: TrafficReporter) -> BoxFuture<'static, ()> {
        match request {
            TrafficRequest::Cut(_) | TrafficRequest::AwaitSettled | TrafficRequest::WatchConnections => {
                let news = TrafficNews::Failed { message: "this node does not steer traffic yet".to_owned() };
                async move { reporter.report(news).await }.boxed()
            }
            TrafficRequest::NotifyDrain { .. } => {
                warn!("the program is not told of its drain: this node does not steer traffic yet");
                futures::future::ready(()).boxed()
            }
            TrafficRequest::Restore => {
                warn!("traffic is not restored: this node does not steer it yet");
                futures::future::ready(()).boxed()
            }
        }
    }

    /// Nobody sends anything to anybody: a worker that was told otherwise in an earlier life has nothing to wait for.
    fn follow(&self, _: watch::Receiver<Arc<Pod>>, reporter: TrafficReporter) -> BoxFuture<'static, ()> {
        async move { reporter.report(TrafficNews::Routed(Routes::default())).await }.boxed()
    }

    fn leaves(&self, _: &Pod) -> Option<Routes> {
        None
    }

    fn released(&self, _: &str) {}

    fn departed(&self, _: &Pod) {}
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::driver::Told;

    #[tokio::test]
    async fn traffic_that_nobody_steers_is_told_as_failed_where_an_answer_is_waited_for() {
        let until = Moment::from_millis(1);
        for (request, is_answered) in [
            (TrafficRequest::Cut(Cut::Divert), true),
            (TrafficRequest::AwaitSettled, true),
            (TrafficRequest::WatchConnections, true),
            (TrafficRequest::NotifyDrain { until }, false),
            (TrafficRequest::Restore, false),
        ] {
            let (told, mut inbox) = mpsc::channel(1);
            NoTraffic.perform(Pod::default(), request.clone(), TrafficReporter::new(Answers::new(told))).await;
            let news = inbox.recv().await;
            let failed = matches!(&news, Some(Told::Answer { input: Input::Traffic(TrafficNews::Failed { .. }), .. }));
            assert_eq!((failed, news.is_some()), (is_answered, is_answered), "{request:?}: {news:?}");
        }
    }
}
