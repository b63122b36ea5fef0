//! Exec over SPDY/3.1, by a client that shares no code with the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};
use flate2::{Compress, Compression, FlushCompress};
use node::streams::serve_connection;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

use super::local::Local;
use super::raw::{ended, upgrade};

/// A frame as its bytes say: its first word, its flags, its payload.
#[derive(Debug)]
struct Raw {
    word: u32,
    fin: bool,
    payload: BytesMut,
}

const CONTROL: u32 = 0x8003_0000;
const SYN_STREAM: u32 = CONTROL | 1;
const SYN_REPLY: u32 = CONTROL | 2;
const RST_STREAM: u32 = CONTROL | 3;
const PING: u32 = CONTROL | 6;
const WINDOW_UPDATE: u32 = CONTROL | 9;

struct Writer {
    half: WriteHalf<DuplexStream>,
    zlib: Compress,
    opened: u32,
}

struct Reader(ReadHalf<DuplexStream>);

impl Writer {
    async fn frame(&mut self, word: u32, fin: bool, payload: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_u32(word);
        frame.put_u32(u32::from(fin) << 24 | u32::try_from(payload.len()).unwrap());
        frame.put_slice(payload);
        self.half.write_all(&frame).await.unwrap();
    }

    /// Opens a stream and returns its id. The header block uses no dictionary, which zlib allows.
    async fn open(&mut self, stream_type: &str) -> u32 {
        let id = if self.opened == 0 { 1 } else { self.opened + 2 };
        self.opened = id;
        let mut plain = BytesMut::new();
        plain.put_u32(1);
        for text in ["streamtype", stream_type] {
            plain.put_u32(u32::try_from(text.len()).unwrap());
            plain.put_slice(text.as_bytes());
        }
        let mut block = Vec::with_capacity(256);
        self.zlib.compress_vec(&plain, &mut block, FlushCompress::Sync).unwrap();
        let mut payload = BytesMut::new();
        payload.put_u32(id);
        payload.put_bytes(0, 6);
        payload.put_slice(&block);
        self.frame(SYN_STREAM, false, &payload).await;
        id
    }
}

impl Reader {
    /// The next frame; `None` when the server has closed.
    async fn next(&mut self) -> Option<Raw> {
        let word = self.0.read_u32().await.ok()?;
        let tail = self.0.read_u32().await.unwrap();
        let mut payload = BytesMut::zeroed((tail & 0x00ff_ffff) as usize);
        self.0.read_exact(&mut payload).await.unwrap();
        Some(Raw { word, fin: tail >> 24 & 1 == 1, payload })
    }

    /// Reads until every stream of `ids` is finished; what each said, and by how much windows were widened.
    async fn until_finished(&mut self, ids: &[u32]) -> (BTreeMap<u32, Vec<u8>>, BTreeMap<u32, u32>) {
        let (mut said, mut windows) = (BTreeMap::<u32, Vec<u8>>::new(), BTreeMap::<u32, u32>::new());
        let mut open: Vec<_> = ids.to_vec();
        while !open.is_empty() {
            let mut frame = self.next().await.expect("the server closed too early");
            match frame.word {
                WINDOW_UPDATE => {
                    let (id, delta) = (frame.payload.get_u32(), frame.payload.get_u32());
                    *windows.entry(id).or_default() += delta;
                }
                SYN_REPLY => {}
                word if word & 0x8000_0000 == 0 => {
                    said.entry(word).or_default().extend(&frame.payload);
                    if frame.fin {
                        open.retain(|id| *id != word);
                    }
                }
                word => panic!("frame {word:#x}"),
            }
        }
        (said, windows)
    }
}

const V4: &[(&str, &str)] = &[
    ("Upgrade", "SPDY/3.1"),
    ("X-Stream-Protocol-Version", "v5.channel.k8s.io"),
    ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
    ("X-Stream-Protocol-Version", "v3.channel.k8s.io"),
];

async fn connect(mut stream: DuplexStream, headers: &[(&str, &str)], query: &str) -> (Writer, Reader) {
    let (code, head) = upgrade(&mut stream, &format!("POST /exec/default/web/app?{query}"), headers).await;
    assert_eq!(code, 101, "{head}");
    assert!(head.contains("upgrade: spdy/3.1\r\n"), "{head}");
    let (reader, half) = tokio::io::split(stream);
    (Writer { half, zlib: Compress::new(Compression::fast(), true), opened: 0 }, Reader(reader))
}

async fn open(query: &str) -> (Writer, Reader) {
    connect(Local::new().connect(), V4, query).await
}

fn text(said: &BTreeMap<u32, Vec<u8>>, id: u32) -> &str {
    str::from_utf8(said.get(&id).map_or(&[], Vec::as_slice)).unwrap()
}

fn status(said: &BTreeMap<u32, Vec<u8>>, id: u32) -> Value {
    serde_json::from_str(text(said, id)).unwrap()
}

#[tokio::test]
async fn both_outputs_and_the_exit_code_arrive_each_on_its_stream() {
    let query = "command=sh&command=-c&command=echo+out;+echo+err+%3E%262;+exit+7&stdout=true&stderr=true";
    let (mut writer, mut reader) = open(query).await;
    let [error, stdout, stderr] =
        [writer.open("error").await, writer.open("stdout").await, writer.open("stderr").await];
    let (said, _) = reader.until_finished(&[error, stdout, stderr]).await;
    assert_eq!((text(&said, stdout), text(&said, stderr)), ("out\n", "err\n"));
    assert_eq!(status(&said, error)["details"]["causes"][0]["message"], "7");
    // The server waits for the client to hang up first.
    writer.half.shutdown().await.unwrap();
    while reader.next().await.is_some() {}
}

#[tokio::test]
async fn exec_starts_only_after_all_spdy_streams_are_open() {
    let (mut writer, mut reader) = open("command=echo&command=hi&stdout=true&stderr=true").await;
    let [error, stdout] = [writer.open("error").await, writer.open("stdout").await];
    for expected in [error, stdout] {
        let mut reply = reader.next().await.unwrap();
        assert_eq!((reply.word, reply.payload.get_u32()), (SYN_REPLY, expected));
    }
    // An answered ping shows that the server has nothing else to say yet.
    writer.frame(PING, false, &7_u32.to_be_bytes()).await;
    let mut pong = reader.next().await.unwrap();
    assert_eq!((pong.word, pong.payload.get_u32()), (PING, 7));
    let stderr = writer.open("stderr").await;
    let (said, _) = reader.until_finished(&[error, stdout, stderr]).await;
    assert_eq!(text(&said, stdout), "hi\n");
}

#[tokio::test]
async fn a_megabyte_goes_through_and_the_windows_follow() {
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let (mut writer, mut reader) = open("command=cat&stdin=true&stdout=true").await;
    let [error, stdin, stdout] = [writer.open("error").await, writer.open("stdin").await, writer.open("stdout").await];
    let input = sent.clone();
    let sending = tokio::spawn(async move {
        for chunk in input.chunks(100_000) {
            writer.frame(stdin, false, chunk).await;
        }
        writer.frame(stdin, true, &[]).await;
        writer
    });
    let (said, windows) = reader.until_finished(&[error, stdout]).await;
    assert!(said[&stdout] == sent, "{} bytes of {} came back", said[&stdout].len(), sent.len());
    assert_eq!(status(&said, error)["status"], "Success");
    let expected = u32::try_from(sent.len()).unwrap();
    assert_eq!((windows[&0], windows[&stdin]), (expected, expected));
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn a_terminal_takes_the_size_of_the_clients_window() {
    let script = "until+[+%22$(stty+size)%22+%3D+%2224+80%22+];+do+sleep+0.01;+done;+tty+-s+%26%26+echo+sized";
    let (mut writer, mut reader) =
        open(&format!("command=sh&command=-c&command={script}&tty=true&stdin=true&stdout=true")).await;
    let [error, _stdin, stdout, resize] = [
        writer.open("error").await,
        writer.open("stdin").await,
        writer.open("stdout").await,
        writer.open("resize").await,
    ];
    writer.frame(resize, false, br#"{"Width":80,"Hei"#).await;
    writer.frame(resize, false, b"ght\":24}\n").await;
    let (said, _) = reader.until_finished(&[error, stdout]).await;
    assert_eq!(text(&said, stdout), "sized\r\n");
    assert_eq!(status(&said, error)["status"], "Success");
}

#[tokio::test]
async fn error_stream_before_v4_carries_plain_text() {
    let headers = [("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v3.channel.k8s.io")];
    let query = "command=sh&command=-c&command=exit+4&stdout=true";
    let (mut writer, mut reader) = connect(Local::new().connect(), &headers, query).await;
    let [error, stdout] = [writer.open("error").await, writer.open("stdout").await];
    let (said, _) = reader.until_finished(&[error, stdout]).await;
    assert!(text(&said, error).ends_with("exit code 4"));
}

#[tokio::test]
async fn a_client_that_hangs_up_hangs_up_the_process() {
    let query = "command=sh&command=-c&command=echo+$$;+exec+cat&stdin=true&stdout=true";
    let (mut writer, mut reader) = open(query).await;
    let [_error, _stdin, stdout] =
        [writer.open("error").await, writer.open("stdin").await, writer.open("stdout").await];
    let pid = loop {
        let frame = reader.next().await.unwrap();
        if frame.word == stdout {
            break str::from_utf8(&frame.payload).unwrap().trim().parse().unwrap();
        }
    };
    drop((writer, reader));
    ended(pid).await;
}

#[tokio::test]
async fn a_stream_nobody_asked_for_is_sent_away_and_the_session_goes_on() {
    let (mut writer, mut reader) = open("command=echo&command=hi&stdout=true").await;
    let odd = writer.open("teletype").await;
    let mut reset = reader.next().await.unwrap();
    assert_eq!((reset.word, reset.payload.get_u32()), (RST_STREAM, odd));
    let [error, stdout] = [writer.open("error").await, writer.open("stdout").await];
    let (said, _) = reader.until_finished(&[error, stdout]).await;
    assert_eq!(text(&said, stdout), "hi\n");
}

#[tokio::test]
async fn a_version_from_the_future_is_refused_with_the_ones_spoken_here() {
    let mut stream = Local::new().connect();
    let headers = [("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v9.channel.k8s.io")];
    let (code, head) = upgrade(&mut stream, "POST /exec/default/web/app?command=ls&stdout=true", &headers).await;
    assert_eq!(code, 403);
    assert!(head.contains("x-accept-stream-protocol-version: v4.channel.k8s.io"), "{head}");
}

#[tokio::test]
async fn random_bytes_end_a_session_without_a_panic() {
    for seed in 1..=200_u64 {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let serving = tokio::spawn(serve_connection(server, Arc::new(Local::new())));
        let (mut writer, _reader) = connect(client, V4, "command=cat&stdin=true&stdout=true").await;
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut noise = vec![];
        if seed % 2 == 0 {
            for name in ["error", "stdin", "stdout"] {
                writer.open(name).await;
            }
            // What looks like a frame gets further than what does not.
            noise.extend([0x80, 3, 0, state.to_be_bytes()[0] % 10, 0, 0, 0, 12]);
        }
        for _ in 0..500 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.push(state.to_be_bytes()[0]);
        }
        // The server may hang up in the middle, which is the right answer.
        let _ = writer.half.write_all(&noise).await;
        drop((writer, _reader));
        serving.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
