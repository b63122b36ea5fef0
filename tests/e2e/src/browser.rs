//! A browser: Debian's Chromium without a window, driven by its own DevTools protocol.
//!
//! It runs in a network namespace of its own, from which one address leads out: that of the API. So what a page asks of anybody else
//! fails, and no pod that starts or ends on this machine breaks its connections, as every change of the network does in this browser.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::pods::SOON;

const PROGRAM: &str = "/usr/bin/chromium-headless-shell";
/// How often a page is looked at while something is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// A page in a browser.
pub struct Browser {
    program: Child,
    socket: WebSocketStream<TcpStream>,
    session: String,
    next: u64,
    /// Errors that the page or the browser told of.
    pub complaints: Vec<String>,
    way_out: JoinHandle<()>,
    _profile: TempDir,
}

/// What is made in the namespace, by a thread that stays there.
struct Inside {
    listener: std::net::TcpListener,
    program: Child,
    devtools: std::net::TcpStream,
    path: String,
}

impl Browser {
    /// Starts one from which `api` can be reached, and nothing else.
    pub async fn start(api: SocketAddr) -> Result<Self> {
        ensure!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing; run scripts/setup test");
        let profile = tempfile::Builder::new().prefix("adieu-browser-").tempdir()?;
        let folder = profile.path().to_owned();
        let inside = std::thread::spawn(move || in_namespace(api, &folder)).join();
        let inside = inside.map_err(|_| anyhow::anyhow!("the thread of the browser broke"))??;
        inside.listener.set_nonblocking(true)?;
        let way_out = tokio::spawn(lead_out(TcpListener::from_std(inside.listener)?, api));
        inside.devtools.set_nonblocking(true)?;
        let stream = TcpStream::from_std(inside.devtools)?;
        let (socket, _) = tokio_tungstenite::client_async(&inside.path, stream).await?;
        let mut browser = Self {
            program: inside.program,
            socket,
            session: String::new(),
            next: 0,
            complaints: Vec::new(),
            way_out,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await?;
        browser.session = attached["sessionId"].as_str().context("a session")?.to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({})).await?;
        }
        // The authority is the instance's own; a person accepts it after comparing the fingerprint.
        browser.call("Security.setIgnoreCertificateErrors", json!({ "ignore": true })).await?;
        Ok(browser)
    }

    /// Asks the browser for something.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).await?;
        let answered = async {
            loop {
                let heard = self.socket.next().await.context("the browser is gone")??;
                let Message::Text(text) = heard else { continue };
                let told: Value = serde_json::from_str(&text)?;
                if told["id"] == id {
                    ensure!(told["error"].is_null(), "{method}: {}", told["error"]);
                    return Ok(told["result"].clone());
                }
                self.complaints.extend(complaint(&told));
            }
        };
        tokio::time::timeout(SOON, answered).await.with_context(|| format!("{method} is not answered"))?
    }

    /// Opens an address as if it was typed.
    pub async fn open(&mut self, url: &str) -> Result<()> {
        let told = self.call("Page.navigate", json!({ "url": url })).await?;
        ensure!(told["errorText"].is_null(), "{url}: {}", told["errorText"]);
        Ok(())
    }

    /// What an expression is on the page.
    pub async fn eval(&mut self, expression: &str) -> Result<Value> {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let told = self.call("Runtime.evaluate", params).await?;
        ensure!(told["exceptionDetails"].is_null(), "{expression}: {}", told["exceptionDetails"]);
        Ok(told["result"]["value"].clone())
    }

    /// Waits until an expression is true, or something; answers what it is.
    pub async fn wait(&mut self, expression: &str) -> Result<Value> {
        let until = tokio::time::Instant::now() + SOON;
        loop {
            // While a page is left for another one there is nothing to ask.
            let found = self.eval(expression).await;
            match found {
                Ok(value) if !matches!(value, Value::Null | Value::Bool(false)) => return Ok(value),
                _ if tokio::time::Instant::now() < until => tokio::time::sleep(LOOK).await,
                last => {
                    let page = self.eval("document.body.innerText").await.unwrap_or_default();
                    bail!("{expression} stays {last:?} on {page}; {:?}", self.complaints)
                }
            }
        }
    }

    /// Presses a key, by the name that a page hears: `Escape`, `ArrowDown`, `/`.
    pub async fn press(&mut self, key: &str) -> Result<()> {
        let text = if key.chars().count() == 1 {
            key
        } else if key == "Enter" {
            "\r"
        } else {
            ""
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key });
            let code = match key {
                "Enter" => 13,
                "Escape" => 27,
                "Tab" => 9,
                "ArrowLeft" => 37,
                "ArrowUp" => 38,
                "ArrowRight" => 39,
                "ArrowDown" => 40,
                _ => 0,
            };
            event["windowsVirtualKeyCode"] = json!(code);
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// Types words where the focus is.
    pub async fn write(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({ "text": text })).await.map(|_| ())
    }

    /// How large the window is.
    pub async fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let params = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", params).await.map(|_| ())
    }

    /// Keeps a picture of the page.
    pub async fn picture(&mut self, file: &Path) -> Result<()> {
        let told = self.call("Page.captureScreenshot", json!({ "format": "png" })).await?;
        let bytes = BASE64.decode(told["data"].as_str().context("a picture")?)?;
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        std::fs::write(file, bytes).context("cannot keep the picture")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.way_out.abort();
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// What a message of the browser complains of, if it does.
fn complaint(told: &Value) -> Option<String> {
    let params = &told["params"];
    match told["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"].to_string()),
        "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
        _ => None,
    }
}

/// Leaves the machine's network for an empty one, and starts the browser there.
fn in_namespace(api: SocketAddr, profile: &Path) -> Result<Inside> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    ensure!(up.success(), "loopback of the browser does not come up");
    let listener = std::net::TcpListener::bind(api)?;
    let mut program = Command::new(PROGRAM)
        // Root of a test machine cannot have Chromium's own sandbox; it sees one page, which is ours.
        .args(["--no-sandbox", "--remote-debugging-port=0", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut told = BufReader::new(program.stderr.take().context("piped")?).lines();
    let listens = |line: &String| line.strip_prefix("DevTools listening on ").map(str::to_owned);
    let path = told.by_ref().map_while(Result::ok).find_map(|line| listens(&line));
    let path = path.context("the browser ended before it listened")?;
    // What it says later is of no use, but it must not stand still because nobody reads.
    std::thread::spawn(move || told.for_each(drop));
    let address = path.trim_start_matches("ws://").split('/').next().context("an address")?;
    let devtools = std::net::TcpStream::connect(address)?;
    Ok(Inside { listener, program, devtools, path })
}

/// Leads connections from the browser's network to the API.
async fn lead_out(listener: TcpListener, api: SocketAddr) {
    while let Ok((mut near, _)) = listener.accept().await {
        tokio::spawn(async move {
            if let Ok(mut far) = TcpStream::connect(api).await {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}
