//! Exec over a WebSocket.

use std::collections::BTreeMap;

use base64::Engine as _;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::local::Local;
use super::raw::{ended, status_of, upgrade};

struct Client(WebSocketStream<DuplexStream>);

/// Everything a session said, by channel, and how often; and the code it was closed with.
#[derive(Debug, Default)]
struct SessionOutput {
    channels: BTreeMap<u8, Vec<u8>>,
    first: Option<Vec<u8>>,
    close: Option<u16>,
}

impl SessionOutput {
    fn text(&self, channel: u8) -> &str {
        str::from_utf8(self.channels.get(&channel).map_or(&[], Vec::as_slice)).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(self.text(3)).unwrap()
    }
}

impl Client {
    async fn open(protocol: &str, query: &str) -> Self {
        Self::open_at(Local::new(), protocol, &format!("/exec/default/web/app?{query}")).await
    }

    async fn open_at(local: Local, protocol: &str, path: &str) -> Self {
        let mut stream = local.connect();
        let (code, head) = handshake(&mut stream, protocol, path).await;
        assert_eq!(code, 101, "{head}");
        assert!(head.contains(&format!("sec-websocket-protocol: {protocol}\r\n")), "{head}");
        Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    async fn send(&mut self, channel: u8, bytes: &[u8]) {
        let message: Bytes = [&[channel], bytes].concat().into();
        self.0.send(Message::Binary(message)).await.unwrap();
    }

    /// Waits for the next message; gives its channel and bytes.
    async fn next(&mut self) -> (u8, Vec<u8>) {
        match self.0.next().await.unwrap().unwrap() {
            Message::Binary(message) => (message[0], message[1..].to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// Listens until the session is closed.
    async fn listen(mut self) -> SessionOutput {
        let mut said = SessionOutput::default();
        while let Some(Ok(message)) = self.0.next().await {
            let message = match message {
                Message::Binary(message) => message.to_vec(),
                Message::Text(text) => {
                    let (channel, rest) = text.split_at(1);
                    let mut message = vec![channel.parse().unwrap()];
                    message.extend(base64::engine::general_purpose::STANDARD.decode(rest).unwrap());
                    message
                }
                Message::Close(frame) => {
                    said.close = frame.map(|frame| frame.code.into());
                    continue;
                }
                other => panic!("{other:?}"),
            };
            said.first.get_or_insert_with(|| message.clone());
            said.channels.entry(message[0]).or_default().extend(&message[1..]);
        }
        said
    }
}

async fn handshake(stream: &mut DuplexStream, protocol: &str, path: &str) -> (u16, String) {
    let headers = [
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", protocol),
    ];
    upgrade(stream, &format!("GET {path}"), &headers).await
}

const V5: &str = "v5.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

#[tokio::test]
async fn both_outputs_and_the_exit_code_arrive() {
    for protocol in [V5, V4] {
        let query = "command=sh&command=-c&command=echo+out;+echo+err+%3E%262;+exit+7&stdout=true&stderr=true";
        let said = Client::open(protocol, query).await.listen().await;
        assert_eq!((said.text(1), said.text(2)), ("out\n", "err\n"));
        // Those of v5 are told by the handshake alone; which of two outputs comes first is nobody's promise.
        let empty = said.first.as_deref() == Some(&[1]);
        assert_eq!(empty, protocol == V4, "before v5 an empty message on stdout comes first: {:?}", said.first);
        let status = said.status();
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"][0]["reason"], "ExitCode");
        assert_eq!(status["details"]["causes"][0]["message"], "7");
        assert_eq!(said.close, Some(1000));
    }
}

#[tokio::test]
async fn exec_success_is_reported_as_a_status() {
    let said = Client::open(V4, "command=true&stderr=true").await.listen().await;
    assert_eq!(said.status(), serde_json::json!({ "metadata": {}, "status": "Success" }));
    assert_eq!(said.first.as_deref(), Some(&[2][..]), "without stdout the first message is on stderr");
}

#[tokio::test]
async fn a_megabyte_goes_through_and_the_half_close_ends_it() {
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let client = Client::open(V5, "command=cat&stdin=true&stdout=true").await;
    let (mut sink, stream) = client.0.split();
    let input = sent.clone();
    let sending = tokio::spawn(async move {
        for chunk in input.chunks(30_000) {
            sink.send(Message::Binary([&[0], chunk].concat().into())).await.unwrap();
        }
        sink.send(Message::Binary(Bytes::from_static(&[255, 0]))).await.unwrap();
        sink
    });
    let mut heard = vec![];
    let mut status = None;
    let mut stream = stream;
    while let Some(Ok(message)) = stream.next().await {
        match message {
            Message::Binary(message) if message[0] == 1 => heard.extend_from_slice(&message[1..]),
            Message::Binary(message) if message[0] == 3 => status = Some(message.slice(1..)),
            Message::Close(_) => {}
            other => panic!("{other:?}"),
        }
    }
    drop(sending.await.unwrap());
    assert!(heard == sent, "{} bytes of {} came back", heard.len(), sent.len());
    assert_eq!(&status.unwrap()[..], br#"{"metadata":{},"status":"Success"}"#);
}

#[tokio::test]
async fn input_that_nobody_reads_does_not_hold_up_the_end() {
    let mut client = Client::open(V4, "command=true&stdin=true&stdout=true").await;
    for _ in 0..10 {
        client.send(0, b"for nobody").await;
    }
    assert_eq!(client.listen().await.status()["status"], "Success");
}

#[tokio::test]
async fn a_client_that_hangs_up_hangs_up_the_process() {
    for protocol in [V5, V4] {
        let query = "command=sh&command=-c&command=echo+$$;+exec+cat&stdin=true&stdout=true";
        let mut client = Client::open(protocol, query).await;
        if protocol == V4 {
            assert_eq!(client.next().await, (1, vec![]));
        }
        let (_, pid) = client.next().await;
        drop(client);
        ended(String::from_utf8(pid).unwrap().trim().parse().unwrap()).await;
    }
}

#[tokio::test]
async fn a_terminal_takes_the_size_of_the_clients_window() {
    let script = "until+[+%22$(stty+size)%22+%3D+%2224+80%22+];+do+sleep+0.01;+done;+tty+-s+%26%26+echo+sized";
    let mut client =
        Client::open(V5, &format!("command=sh&command=-c&command={script}&tty=true&stdin=true&stdout=true")).await;
    client.send(4, br#"{"Width":80,"Height":24}"#).await;
    let said = client.listen().await;
    assert_eq!(said.text(1), "sized\r\n");
    assert_eq!(said.status()["status"], "Success");
}

#[tokio::test]
async fn a_terminal_passes_on_the_interrupt_key() {
    // It starts no other program: dash loses a signal that arrives while it does.
    let script = "trap+'echo+caught;exit+3'+INT;+echo+ready;+while+:;+do+read+line;+done";
    let mut client =
        Client::open(V5, &format!("command=sh&command=-c&command={script}&tty=true&stdin=true&stdout=true")).await;
    // A terminal may hand a line over in pieces.
    let mut ready = Vec::new();
    while !ready.ends_with(b"\n") {
        ready.extend(client.next().await.1);
    }
    assert_eq!(ready, b"ready\r\n");
    client.send(0, b"\x03").await;
    let said = client.listen().await;
    assert!(said.text(1).contains("caught"), "{said:?}");
    assert_eq!(said.status()["details"]["causes"][0]["message"], "3");
}

#[tokio::test]
async fn pings_are_answered_while_nothing_else_happens() {
    let mut client = Client::open(V5, "command=cat&stdin=true&stdout=true").await;
    client.0.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
    assert_eq!(client.0.next().await.unwrap().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
}

#[tokio::test]
async fn a_process_left_behind_does_not_keep_the_session_open() {
    let query = "command=sh&command=-c&command=sleep+60+%26+echo+$!&stdout=true";
    let said = Client::open(V5, query).await.listen().await;
    assert_eq!(said.status()["status"], "Success");
    let pid = rustix::process::Pid::from_raw(said.text(1).trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it still ran");
}

#[tokio::test]
async fn the_oldest_protocol_tells_only_failures_and_in_words() {
    let failed = Client::open("channel.k8s.io", "command=sh&command=-c&command=exit+4&stdout=true").await;
    assert!(failed.listen().await.text(3).ends_with("exit code 4"));
    let succeeded = Client::open("channel.k8s.io", "command=true&stdout=true").await.listen().await;
    assert!(!succeeded.channels.contains_key(&3));
    assert_eq!(succeeded.close, Some(1000));
}

#[tokio::test]
async fn browsers_may_speak_base64() {
    let mut client = Client::open("v4.base64.channel.k8s.io", "command=head&command=-n1&stdin=true&stdout=true").await;
    let input = base64::engine::general_purpose::STANDARD.encode("hello\n");
    client.0.send(Message::text(format!("0{input}"))).await.unwrap();
    let said = client.listen().await;
    assert_eq!(said.text(1), "hello\n");
    assert_eq!(said.status()["status"], "Success");
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_told_on_the_error_channel() {
    let said = Client::open(V5, "command=/no/such/program&stdout=true").await.listen().await;
    assert_eq!(said.status()["reason"], "InternalError");
    assert!(said.status()["message"].as_str().unwrap().contains("/no/such/program"));
    assert_eq!(said.close, Some(1000));
}

#[tokio::test]
async fn a_wrong_name_or_protocol_is_refused_before_the_upgrade() {
    for (path, protocol, expected) in [
        ("/exec/default/web/other?command=ls&stdout=true", V5, 404),
        ("/exec/default/web/app?command=ls&stdout=true", "v9.channel.k8s.io", 400),
    ] {
        let mut stream = Local::new().connect();
        let (code, head) = handshake(&mut stream, protocol, path).await;
        assert_eq!(code, expected, "{head}");
        let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut body).await.unwrap();
        assert_eq!(status_of(str::from_utf8(&body).unwrap())["code"], expected);
    }
}

/// As clients other than kubectl forward ports: two channels a port, each beginning with its number.
/// `kubectl run --attach --stdin --leave-stdin-open` waits for this end.
#[tokio::test]
async fn attached_client_leaves_with_its_input_unless_the_containers_input_ends_with_it() {
    for (local, says) in [(Local::new(), "attached\nhello\n"), (Local::stdin_once(), "attached\nhello\nover\n")] {
        let path = "/attach/default/web/app?stdin=true&stdout=true";
        let mut client = Client::open_at(local, V5, path).await;
        client.send(0, b"hello\n").await;
        client.send(255, &[0]).await;
        let output = client.listen().await;
        assert_eq!((output.text(1), &*output.status()["status"].to_string()), (says, "\"Success\""));
    }
}

#[tokio::test]
async fn ports_are_forwarded_on_channels() {
    for protocol in [V4, "v4.base64.channel.k8s.io"] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // A port that is held and not listened to refuses, and nobody else can come to listen there.
        let held = tokio::net::TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let closed = held.local_addr().unwrap().port();
        let echo = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut from, mut to) = stream.split();
            let mut five = [0; 5];
            tokio::io::AsyncReadExt::read_exact(&mut from, &mut five).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut to, &five).await.unwrap();
        });
        let mut stream = Local::new().connect();
        let path = format!("/portForward/default/web?port={port},{closed}");
        let (code, head) = handshake(&mut stream, protocol, &path).await;
        assert_eq!(code, 101, "{head}");
        let mut client = Client(WebSocketStream::from_raw_socket(stream, Role::Client, None).await);
        match protocol {
            V4 => client.send(0, b"adieu").await,
            _ => client.0.send(Message::text("0YWRpZXU=")).await.unwrap(),
        }
        let said = client.listen().await;
        assert_eq!(said.channels[&0], [&port.to_le_bytes()[..], b"adieu"].concat());
        assert_eq!(said.channels[&1], port.to_le_bytes(), "nothing went wrong");
        assert_eq!(said.channels[&2], closed.to_le_bytes());
        let (number, complaint) = said.channels[&3].split_at(2);
        assert_eq!(number, closed.to_le_bytes());
        assert!(str::from_utf8(complaint).unwrap().contains("cannot connect"), "{complaint:?}");
        echo.await.unwrap();
    }
    for query in ["", "?port=0", "?port=x", "?port=70000"] {
        let mut stream = Local::new().connect();
        let (code, head) = handshake(&mut stream, V4, &format!("/portForward/default/web{query}")).await;
        assert_eq!(code, 400, "{query}: {head}");
    }
}
