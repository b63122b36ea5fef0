//! A token server as registries expect one: gives signed tokens to those who know the password.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::{PASSWORD, USER};

const SERVICE: &str = "stable";

/// The first line of a request, and its credentials.
type TokenRequest = (String, Option<String>);

/// A running token server; ends with this value.
pub struct TokenServer {
    pub port: u16,
    certificate: PathBuf,
    /// The first line and the credentials of every request.
    pub asked: Arc<Mutex<Vec<TokenRequest>>>,
    task: tokio::task::JoinHandle<()>,
}

impl TokenServer {
    /// `anonymous`: those without a password may pull too.
    pub async fn start(dir: &Path, anonymous: bool) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let made = rcgen::CertificateParams::new(vec!["tokens".to_owned()]).unwrap().self_signed(&key).unwrap();
        let certificate = dir.join("tokens.pem");
        std::fs::write(&certificate, made.pem()).unwrap();
        let chain = STANDARD.encode(made.der());
        let random = SystemRandom::new();
        let signer = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = BufReader::new(stream);
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await.unwrap_or(0) == 0 || line.trim().is_empty() {
                        break;
                    }
                    lines.push(line.trim().to_owned());
                }
                let header = |name: &str| {
                    lines.iter().find_map(|line| {
                        let (key, value) = line.split_once(':')?;
                        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
                    })
                };
                let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                let target = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
                let query = match body.is_empty() {
                    true => target.split_once('?').map(|(_, query)| query.to_owned()).unwrap_or_default(),
                    false => String::from_utf8(body).unwrap(),
                };
                let basic = header("authorization");
                let proof = basic.clone().or_else(|| field(&query, "refresh_token"));
                heard.lock().unwrap().push((lines.first().cloned().unwrap_or_default(), proof.clone()));
                let password = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
                let known = proof.as_deref() == Some(&password) || proof.as_deref() == Some("an identity");
                let answer = match known || (anonymous && proof.is_none()) {
                    true => ok(&token(&signer, &random, &chain, &field(&query, "scope").unwrap_or_default())),
                    false => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
                };
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { port, certificate, asked, task }
    }

    /// What a registry has to know of it.
    pub fn section(&self) -> Value {
        json!({ "realm": format!("http://127.0.0.1:{}/token", self.port), "service": SERVICE, "issuer": "tests",
            "rootcertbundle": self.certificate })
    }
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn field(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            b'+' => b' ',
            other => other,
        });
    }
    Some(String::from_utf8(bytes).unwrap())
}

fn ok(token: &str) -> String {
    let body = json!({ "token": token, "expires_in": 300 }).to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// A token for `repository:NAME:ACTIONS`.
fn token(signer: &EcdsaKeyPair, random: &SystemRandom, chain: &str, scope: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let parts: Vec<&str> = scope.split(':').collect();
    let access = match parts.as_slice() {
        [kind, name, actions] => {
            json!([{ "type": kind, "name": name, "actions": actions.split(',').collect::<Vec<_>>() }])
        }
        _ => json!([]),
    };
    let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [chain] });
    let claims = json!({ "iss": "tests", "sub": USER, "aud": SERVICE, "exp": now + 300, "nbf": now - 60, "iat": now,
        "jti": "1", "access": access });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&header), part(&claims));
    let signature = signer.sign(random, text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}
