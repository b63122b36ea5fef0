//! Probes: asking a container, again and again, how it is; and the one HTTP request of a lifecycle hook.
//!
//! [`Threshold`] is the whole rule of when an answer counts; [`run_probe_loop`] is the clock around it; [`attempt`]
//! asks once. What an answer means for the container is decided elsewhere, by `lifecycle`.

mod grpc;
mod messages;
mod tls;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use lifecycle::Probe;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

pub use self::grpc::GrpcCheck;
use self::grpc::Health;

/// How often a probe that could not be carried out is tried before its turn is given up.
const TRIES: u32 = 3;
/// How much of an answer is read, so that a server sees its answer taken.
const BODY_MAX: usize = 10 * 1024;

/// What a probe does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeAction {
    /// Runs a program in the container; exit code 0 is well.
    Exec(Vec<String>),
    /// Asks by HTTP; a status from 200 to 399 is well. Redirects are answers, they are not followed.
    HttpGet(HttpGet),
    /// Opens a connection; that it opens is well.
    TcpSocket {
        /// Address or name.
        host: String,
        /// Port.
        port: u16,
    },
    /// Asks by gRPC's health protocol; `SERVING` is well.
    Grpc(GrpcCheck),
}

/// One HTTP request of a probe or a hook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpGet {
    /// Address or name to connect to.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// `HTTP` (also if empty) or `HTTPS`.
    pub scheme: String,
    /// Extra headers, which go before ours.
    pub headers: Vec<(String, String)>,
}

/// When a probe asks, and how many answers it takes to change its mind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeTiming {
    /// How long to wait before the first attempt, counted from the call of [`run_probe_loop`].
    pub initial_delay: Duration,
    /// From one attempt to the next.
    pub period: Duration,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How many good answers in a row make it well.
    pub success_threshold: u32,
    /// How many bad answers in a row make it unwell.
    pub failure_threshold: u32,
}

/// What came of asking once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// It is well.
    Success,
    /// It is not, and says so like this.
    Failure(String),
    /// It could not be asked, for a reason that says nothing about it.
    Error(String),
}

/// What a probe tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeNews {
    /// Its mind changed.
    Changed {
        /// What it is now.
        passing: bool,
    },
    /// One attempt failed, whether or not that changed anything.
    Failed {
        /// What the container answered.
        output: String,
    },
    /// One turn was given up, because the container could not be asked.
    Errored {
        /// Why not.
        message: String,
    },
}

/// Counts answers: the state changes only after as many equal ones in a row as its threshold says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Threshold {
    success: u32,
    failure: u32,
    state: Option<bool>,
    last: Option<bool>,
    run: u32,
}

impl Threshold {
    /// Before the first answer a container is not ready, is alive, and whether it has started is open.
    pub fn new(kind: Probe, timing: &ProbeTiming) -> Self {
        let state = match kind {
            Probe::Readiness => Some(false),
            Probe::Liveness => Some(true),
            Probe::Startup => None,
        };
        Self { success: timing.success_threshold, failure: timing.failure_threshold, state, last: None, run: 0 }
    }

    /// Takes an answer; returns the new state if it changes with this one.
    pub fn count(&mut self, passing: bool) -> Option<bool> {
        self.run = if self.last == Some(passing) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(passing);
        let needed = if passing { self.success } else { self.failure };
        if self.run < needed || self.state == Some(passing) {
            return None;
        }
        self.state = Some(passing);
        Some(passing)
    }
}

/// Probes one run of a container until there is nothing more to learn: a readiness probe until it is dropped, a
/// liveness probe until it fails, a startup probe until it knows. Also ends when nobody listens any more.
pub async fn run_probe_loop<F, A>(kind: Probe, timing: ProbeTiming, mut attempt: F, news: mpsc::Sender<ProbeNews>)
where
    F: FnMut() -> A,
    A: Future<Output = Attempt>,
{
    let mut threshold = Threshold::new(kind, &timing);
    tokio::time::sleep(timing.initial_delay).await;
    let mut turns = tokio::time::interval(timing.period.max(Duration::from_millis(1)));
    // An attempt that takes longer than a period costs the turns it ran into.
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        turns.tick().await;
        let (told, changed) = match insist(&mut attempt).await {
            Attempt::Success => (Ok(()), threshold.count(true)),
            Attempt::Failure(output) => (news.send(ProbeNews::Failed { output }).await, threshold.count(false)),
            Attempt::Error(message) => (news.send(ProbeNews::Errored { message }).await, None),
        };
        if told.is_err() || news.is_closed() {
            return;
        }
        let Some(passing) = changed else { continue };
        if news.send(ProbeNews::Changed { passing }).await.is_err() {
            return;
        }
        match (kind, passing) {
            (Probe::Readiness, _) | (Probe::Liveness, true) => {}
            // The container will be stopped, and its next run gets a probe of its own; or it has started.
            (Probe::Liveness, false) | (Probe::Startup, _) => return,
        }
    }
}

/// Tries again what could not be carried out.
async fn insist<F, A>(attempt: &mut F) -> Attempt
where
    F: FnMut() -> A,
    A: Future<Output = Attempt>,
{
    for _ in 1..TRIES {
        match attempt().await {
            Attempt::Error(_) => {}
            answer @ (Attempt::Success | Attempt::Failure(_)) => return answer,
        }
    }
    attempt().await
}

/// What a program in the container answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecAnswer {
    /// Its exit code.
    pub code: u8,
    /// What it wrote.
    pub output: String,
}

/// Asks once. `exec` runs a program in the container; an error from it means that it could not be run.
pub async fn attempt<E, A>(action: &ProbeAction, timeout: Duration, exec: E) -> Attempt
where
    E: FnOnce(Vec<String>) -> A,
    A: Future<Output = Result<ExecAnswer, String>>,
{
    let asked = async {
        match action {
            ProbeAction::Exec(command) => match exec(command.clone()).await {
                Ok(ExecAnswer { code: 0, .. }) => Attempt::Success,
                Ok(ExecAnswer { output, .. }) => Attempt::Failure(output),
                Err(message) => Attempt::Error(message),
            },
            ProbeAction::HttpGet(get) => match http_get(get, "kube-probe/1.36").await {
                Ok(status) if status.is_success() || status.is_redirection() => Attempt::Success,
                Ok(status) => Attempt::Failure(format!("HTTP probe failed with statuscode: {}", status.as_u16())),
                Err(error) => Attempt::Failure(messages::unanswered(get, &error)),
            },
            ProbeAction::TcpSocket { host, port } => match TcpStream::connect((host.as_str(), *port)).await {
                Ok(_) => Attempt::Success,
                Err(error) => Attempt::Failure(messages::no_connection(host, *port, &error)),
            },
            ProbeAction::Grpc(asked) => match grpc::check(asked).await {
                Ok(Health::Serving) => Attempt::Success,
                Ok(health @ (Health::NotServing | Health::ServiceUnknown | Health::Unknown)) => {
                    Attempt::Failure(format!("service unhealthy (responded with \"{health}\")"))
                }
                Err(error) => Attempt::Failure(supervision::error_chain(&error)),
            },
        }
    };
    match tokio::time::timeout(timeout, asked).await {
        Ok(attempt) => attempt,
        Err(_) => Attempt::Failure(messages::out_of_time(action, timeout)),
    }
}

/// Why an HTTP request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpGetError {
    /// Somebody listens, but does not speak TLS.
    #[error("no TLS with {host}:{port}")]
    Tls {
        /// Whom with.
        host: String,
        /// Which port.
        port: u16,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The request cannot be written down.
    #[error("{what} {text:?} is not valid in an HTTP request")]
    Invalid {
        /// Which part of it.
        what: &'static str,
        /// How it was given.
        text: String,
    },
    /// Nobody listens.
    #[error("cannot connect to {host}:{port}")]
    Connect {
        /// Where to.
        host: String,
        /// Which port.
        port: u16,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Somebody listens, but does not speak HTTP or hung up.
    #[error("no HTTP answer from {host}:{port}")]
    Answer {
        /// Where from.
        host: String,
        /// Which port.
        port: u16,
        /// What went wrong.
        source: hyper::Error,
    },
}

/// How a hook's request was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookAnswer {
    /// As it was asked.
    AsAsked(StatusCode),
    /// It was to be HTTPS, the server spoke HTTP, and so did we then.
    InPlainText(StatusCode),
}

/// Sends the request of a lifecycle hook: any answer is a success. There is no time limit here; the grace budget
/// of whoever waits is the limit (node-termination 4.2). A server that does not speak TLS is asked once more without, and
/// without the secret that an `Authorization` header may hold.
pub async fn hook_http_get(get: &HttpGet) -> Result<HookAnswer, HttpGetError> {
    const AGENT: &str = "kube-lifecycle/1.36";
    match http_get(get, AGENT).await {
        Err(HttpGetError::Tls { source, .. }) if tls::is_plain_http(&source) => {
            let headers = get.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            let plain = HttpGet { scheme: "HTTP".to_owned(), headers: headers.cloned().collect(), ..get.clone() };
            http_get(&plain, AGENT).await.map(HookAnswer::InPlainText)
        }
        answer => answer.map(HookAnswer::AsAsked),
    }
}

async fn http_get(get: &HttpGet, agent: &'static str) -> Result<StatusCode, HttpGetError> {
    let request = request(get, agent)?;
    let (host, port) = (get.host.clone(), get.port);
    let stream = match TcpStream::connect((get.host.as_str(), port)).await {
        Ok(stream) => stream,
        Err(source) => return Err(HttpGetError::Connect { host, port, source }),
    };
    let answer = if get.scheme.eq_ignore_ascii_case("https") {
        match tls::connect(&get.host, stream).await {
            Ok(stream) => converse(stream, request).await,
            Err(source) => return Err(HttpGetError::Tls { host, port, source }),
        }
    } else {
        converse(stream, request).await
    };
    answer.map_err(|source| HttpGetError::Answer { host, port, source })
}

fn request(get: &HttpGet, agent: &'static str) -> Result<Request<Empty<Bytes>>, HttpGetError> {
    let invalid = |what, text: &str| HttpGetError::Invalid { what, text: text.to_owned() };
    let path = if get.path.starts_with('/') { get.path.clone() } else { format!("/{}", get.path) };
    let mut request = Request::get(&path).body(Empty::new()).map_err(|_| invalid("path", &get.path))?;
    let headers = request.headers_mut();
    for (name, value) in &get.headers {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| invalid("header name", name))?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| invalid("header value", value))?;
        headers.append(name, value);
    }
    let host = if get.host.contains(':') { format!("[{}]", get.host) } else { get.host.clone() };
    let host = HeaderValue::try_from(format!("{host}:{}", get.port)).map_err(|_| invalid("host", &get.host))?;
    headers.entry(HOST).or_insert(host);
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

async fn converse<S>(stream: S, request: Request<Empty<Bytes>>) -> hyper::Result<StatusCode>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let answered = async move {
        let mut response = sender.send_request(request).await?;
        let mut read = 0;
        // An answer that breaks off is an answer.
        while let Some(Ok(frame)) = response.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > BODY_MAX {
                break;
            }
        }
        Ok(response.status())
    };
    tokio::pin!(answered);
    tokio::select! {
        biased;
        status = &mut answered => status,
        // The connection may be over before the last of the answer has been looked at.
        _ = connection => answered.await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::VecDeque;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn timing(success_threshold: u32, failure_threshold: u32) -> ProbeTiming {
        ProbeTiming {
            initial_delay: Duration::ZERO,
            period: Duration::from_millis(1),
            timeout: Duration::from_secs(5),
            success_threshold,
            failure_threshold,
        }
    }

    /// `+` and `-` are answers; the result shows what each changed.
    fn story(kind: Probe, success: u32, failure: u32, answers: &str) -> String {
        let mut threshold = Threshold::new(kind, &timing(success, failure));
        let told = answers.chars().map(|answer| match threshold.count(answer == '+') {
            None => '.',
            Some(true) => '+',
            Some(false) => '-',
        });
        told.collect()
    }

    #[test]
    fn a_container_becomes_ready_and_unready_after_enough_answers_in_a_row() {
        assert_eq!(story(Probe::Readiness, 1, 3, "--+--+---+"), "..+.....-+");
        assert_eq!(story(Probe::Readiness, 3, 1, "++-+++-+++"), ".....+-..+");
    }

    #[test]
    fn a_container_is_alive_until_enough_answers_say_otherwise() {
        assert_eq!(story(Probe::Liveness, 1, 3, "+--+---"), "......-");
        assert_eq!(story(Probe::Liveness, 1, 1, "-"), "-");
    }

    #[test]
    fn a_container_has_started_or_failed_to_with_the_first_verdict() {
        assert_eq!(story(Probe::Startup, 1, 30, "---+"), "...+");
        assert_eq!(story(Probe::Startup, 1, 3, "---"), "..-");
    }

    async fn told(kind: Probe, timing: ProbeTiming, answers: Vec<Attempt>) -> Vec<ProbeNews> {
        let (tx, mut rx) = mpsc::channel(64);
        let mut answers = VecDeque::from(answers);
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let mut end = Some(end);
        let run = run_probe_loop(
            kind,
            timing,
            move || {
                let answer = answers.pop_front();
                if answer.is_none() {
                    end.take();
                }
                async move {
                    match answer {
                        Some(answer) => answer,
                        None => std::future::pending().await,
                    }
                }
            },
            tx,
        );
        // The loop ends by itself, or has used up its answers and is dropped.
        tokio::select! {
            () = run => {}
            _ = ended => {}
        }
        std::iter::from_fn(|| rx.try_recv().ok()).collect()
    }

    fn failure(text: &str) -> Attempt {
        Attempt::Failure(text.to_owned())
    }

    #[tokio::test]
    async fn a_liveness_probe_ends_with_its_failure_and_tells_every_failed_attempt() {
        let answers = vec![failure("a"), Attempt::Success, failure("b"), failure("c"), failure("unheard")];
        let news = told(Probe::Liveness, timing(1, 2), answers).await;
        let failed = |text: &str| ProbeNews::Failed { output: text.to_owned() };
        assert_eq!(news, [failed("a"), failed("b"), failed("c"), ProbeNews::Changed { passing: false }]);
    }

    #[tokio::test]
    async fn a_startup_probe_ends_with_its_first_success() {
        let news = told(Probe::Startup, timing(1, 3), vec![failure("a"), Attempt::Success, failure("unheard")]).await;
        assert_eq!(news, [ProbeNews::Failed { output: "a".to_owned() }, ProbeNews::Changed { passing: true }]);
    }

    #[tokio::test]
    async fn an_attempt_that_errors_is_tried_three_times_and_then_does_not_count() {
        let error = || Attempt::Error("no runtime".to_owned());
        let answers = vec![error(), error(), Attempt::Success, error(), error(), error(), failure("a")];
        let news = told(Probe::Readiness, timing(1, 1), answers).await;
        let expected = [
            ProbeNews::Changed { passing: true },
            ProbeNews::Errored { message: "no runtime".to_owned() },
            ProbeNews::Failed { output: "a".to_owned() },
            ProbeNews::Changed { passing: false },
        ];
        assert_eq!(news, expected);
    }

    #[tokio::test]
    async fn probe_waits_for_its_initial_delay() {
        let delay = Duration::from_millis(60);
        let before = tokio::time::Instant::now();
        told(Probe::Startup, ProbeTiming { initial_delay: delay, ..timing(1, 1) }, vec![Attempt::Success]).await;
        assert!(before.elapsed() >= delay);
    }

    /// Answers one request with these bytes; returns what it was asked.
    async fn server(answer: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![];
            while !request.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut request).await.unwrap() == 0 {
                    break;
                }
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        (port, task)
    }

    /// Answers whatever comes first, as a server does that does not speak TLS, and then a request; returns the latter.
    async fn plain_server(answer: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
        let (listener, task) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), server(answer).await);
        let port = listener.local_addr().unwrap().port();
        let forward = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = vec![];
            stream.read_buf(&mut hello).await.unwrap();
            stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTPS request").await.unwrap();
            stream.shutdown().await.unwrap();
            while stream.read_buf(&mut hello).await.is_ok_and(|read| read > 0) {}
            let (mut asker, _) = listener.accept().await.unwrap();
            let mut onward = TcpStream::connect(("127.0.0.1", task.0)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut asker, &mut onward).await;
            task.1.await.unwrap()
        });
        (port, forward)
    }

    fn get(port: u16) -> HttpGet {
        HttpGet {
            host: "127.0.0.1".to_owned(),
            port,
            path: "/healthz?full=1".to_owned(),
            scheme: "HTTP".to_owned(),
            headers: vec![("X-Who".to_owned(), "probe".to_owned())],
        }
    }

    async fn ask(action: ProbeAction) -> Attempt {
        attempt(&action, Duration::from_secs(5), async |command| {
            Ok(ExecAnswer { code: u8::from(command != ["true"]), output: command.join(" ") })
        })
        .await
    }

    #[tokio::test]
    async fn http_statuses_from_200_to_399_are_well() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Attempt::Success),
            ("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", Attempt::Success),
            ("HTTP/1.0 200 OK\r\n\r\nuntil the end", Attempt::Success),
            ("HTTP/1.1 404 Not Found\r\n\r\n", failure("HTTP probe failed with statuscode: 404")),
            (
                "HTTP/1.1 500 Oops\r\nContent-Length: 99999\r\n\r\nbroken off",
                failure("HTTP probe failed with statuscode: 500"),
            ),
        ] {
            let (port, asked) = server(answer).await;
            assert_eq!(ask(ProbeAction::HttpGet(get(port))).await, expected, "{answer}");
            let asked = asked.await.unwrap().to_ascii_lowercase();
            assert!(asked.starts_with("get /healthz?full=1 http/1.1\r\n"), "{asked}");
            for header in
                ["x-who: probe", "user-agent: kube-probe/", "connection: close", &format!("host: 127.0.0.1:{port}")]
            {
                assert!(asked.contains(header), "{header} in {asked}");
            }
        }
    }

    #[tokio::test]
    async fn a_hook_takes_any_answer_and_tells_a_broken_connection() {
        let (port, _asked) = server("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").await;
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(hook_http_get(&get(port)).await.unwrap(), HookAnswer::AsAsked(unavailable));
        let (port, _asked) = server("").await;
        assert!(matches!(hook_http_get(&get(port)).await, Err(HttpGetError::Answer { .. })));
    }

    /// [NT-76]: a hook by HTTPS to a server that speaks HTTP is asked once more without TLS, and without the secret. A
    /// probe is not.
    #[tokio::test]
    async fn a_secure_hook_falls_back_to_plain_text_without_its_secret() {
        let secret = ("Authorization".to_owned(), "Bearer s3cret".to_owned());
        let secure = |port| {
            let mut get = HttpGet { scheme: "HTTPS".to_owned(), ..get(port) };
            get.headers.push(secret.clone());
            get
        };
        let (port, asked) = plain_server("HTTP/1.1 204 No Content\r\n\r\n").await;
        let answer = hook_http_get(&secure(port)).await.unwrap();
        assert_eq!(answer, HookAnswer::InPlainText(StatusCode::NO_CONTENT));
        let asked = asked.await.unwrap().to_ascii_lowercase();
        assert!(asked.starts_with("get /healthz?full=1 http/1.1\r\n") && asked.contains("x-who: probe"), "{asked}");
        assert!(!asked.contains("s3cret"), "{asked}");
        let (port, _asked) = plain_server("HTTP/1.1 204 No Content\r\n\r\n").await;
        let probed = ask(ProbeAction::HttpGet(secure(port))).await;
        assert!(
            matches!(&probed, Attempt::Failure(message)
            if message == &format!("Get \"https://127.0.0.1:{port}/healthz?full=1\": http: server gave HTTP response to HTTPS client")),
            "{probed:?}"
        );
    }

    /// [NT-64] [NT-65] [NT-66]: hooks by HTTPS are sent. A certificate is not looked at: hooks and probes ask the pod, at an address, as they would without TLS.
    #[tokio::test]
    async fn a_secure_request_trusts_any_certificate() {
        let (port, asked) = tls::testing::server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let secure = HttpGet { scheme: "HTTPS".to_owned(), ..get(port) };
        assert_eq!(hook_http_get(&secure).await.unwrap(), HookAnswer::AsAsked(StatusCode::OK));
        let asked = asked.await.unwrap().to_ascii_lowercase();
        assert!(asked.contains("user-agent: kube-lifecycle/"), "{asked}");
        let (port, _asked) = tls::testing::server("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").await;
        let secure = HttpGet { scheme: "https".to_owned(), ..get(port) };
        let expected = failure("HTTP probe failed with statuscode: 500");
        assert_eq!(ask(ProbeAction::HttpGet(secure)).await, expected);
    }

    #[tokio::test]
    async fn a_connection_that_opens_is_well_and_one_that_is_refused_is_not() {
        // A port that is held and not listened to refuses, and nobody else can come to listen there.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = socket.local_addr().unwrap().port();
        let action = ProbeAction::TcpSocket { host: "127.0.0.1".to_owned(), port };
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(ask(action.clone()).await, failure(&refused));
        let asked = format!("Get \"http://127.0.0.1:{port}/healthz?full=1\": {refused}");
        assert_eq!(ask(ProbeAction::HttpGet(get(port))).await, failure(&asked));
        let _listener = socket.listen(1).unwrap();
        assert_eq!(ask(action).await, Attempt::Success);
    }

    #[tokio::test]
    async fn a_program_is_well_if_it_says_so_and_unwell_if_it_takes_too_long() {
        assert_eq!(ask(ProbeAction::Exec(vec!["true".to_owned()])).await, Attempt::Success);
        assert_eq!(ask(ProbeAction::Exec(vec!["false".to_owned()])).await, failure("false"));
        let sleeps = ProbeAction::Exec(vec!["sleep".to_owned(), "9".to_owned()]);
        let forever = attempt(&sleeps, Duration::from_millis(10), |_| std::future::pending()).await;
        assert_eq!(forever, failure("command timed out: \"sleep 9\" timed out after 10ms"));
    }
}
