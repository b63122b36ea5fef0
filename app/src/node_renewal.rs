//! A node that runs elsewhere renews its own certificates, by asking its server (`certificates.k8s.io`).
//!
//! ```text
//!  70 to 90 % of its life ─▶ new key, request ─▶ approved and signed by the server ─▶ proven by one request ─▶ kept ─▶ shown
//! ```
//!
//! Until the new one is proven and kept, the old one is used. Nothing else begins anew: connections that are open stay as they are, and
//! pods are not touched. The certificate to serve with comes first, because the one made by `adieu server add-node` does for both, and
//! its successor does not.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::WatchUpdate;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ObjectMeta, PostParams};
use server::pki::{self, NodeCertificate, NodeCertificates, NodeRequest};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::membership::Membership;

/// Where the certificate that the node serves with is kept below its folder.
const SERVING: &str = "serving.pem";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// How long an answer is waited for: somebody may have to approve.
const ANSWER_WAIT: Duration = Duration::from_secs(5 * 60);
/// The clock may be set meanwhile, so a long wait is taken in parts.
const LOOK: Duration = Duration::from_secs(60 * 60);
/// After a failure: at first, and at most.
const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_MOST: Duration = Duration::from_secs(60 * 60);
/// The part of a certificate's life after which it is renewed, in thousandths: that, and up to a fifth more, so that nodes that were
/// made together do not all ask together.
const RENEW_AFTER: i64 = 700;
const SPREAD: i64 = 200;

/// Renews a node's certificates.
pub(crate) struct NodeRenewal {
    dir: PathBuf,
    membership: Membership,
    serving: Option<NodeCertificate>,
    /// Where its server reaches it.
    address: IpAddr,
    /// Its place in the spread, in thousandths.
    place: i64,
}

/// What the node below `dir` serves with, if that is another certificate than its client's.
pub(crate) fn kept_serving(dir: &Path, node: &str) -> Result<Option<NodeCertificate>> {
    let path = dir.join(SERVING);
    let kept = pki::read_pair(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(kept.filter(|kept| kept.node().is_some_and(|(name, (_, end))| name == node && end > now())))
}

impl NodeRenewal {
    pub(crate) fn new(dir: &Path, membership: Membership, address: IpAddr) -> Result<Self> {
        let serving = kept_serving(dir, &membership.node)?;
        let (_, bits) = uuid::Uuid::new_v4().as_u64_pair();
        let place = i64::try_from(bits % 1000).unwrap_or_default();
        Ok(Self { dir: dir.to_owned(), membership, serving, address, place })
    }

    /// Renews for ever.
    pub(crate) async fn run(mut self) {
        let mut pause = RETRY_FIRST;
        loop {
            let wait = self.due_in(now());
            if !wait.is_zero() {
                tokio::time::sleep(wait.min(LOOK)).await;
                continue;
            }
            match self.renew(now()).await {
                Ok(()) => pause = RETRY_FIRST,
                Err(error) => {
                    let error = format!("{error:#}");
                    warn!(error, again_in = ?pause, "the node's certificates could not be renewed");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MOST);
                }
            }
        }
    }

    fn due_in(&self, now: i64) -> Duration {
        let serving = self.serving.as_ref().and_then(NodeCertificate::node).map(|(_, life)| life);
        let first = [Some(self.membership.life), serving].into_iter().flatten().map(|life| due(life, self.place)).min();
        let left = first.unwrap_or_default().saturating_sub(now);
        Duration::from_secs(u64::try_from(left).unwrap_or_default())
    }

    /// Renews what is due, the certificate to serve with first.
    async fn renew(&mut self, now: i64) -> Result<()> {
        let is_due = |life: (i64, i64)| due(life, self.place) <= now;
        let client_is_due = is_due(self.membership.life);
        let serving_life = self.serving.as_ref().and_then(NodeCertificate::node).map(|(_, life)| life);
        if serving_life.map_or(client_is_due, is_due) {
            match self.ask(SERVING_SIGNER, "server auth", Some(self.address)).await {
                Ok(serving) => self.serve_with(serving)?,
                // The present one goes on to serve as long as it is good; somebody may have to approve the next.
                Err(error) if client_is_due => {
                    let error = format!("{error:#}");
                    warn!(error, "the certificate that the node serves with was not renewed");
                    if self.serving.is_none() {
                        self.serve_with(self.membership.keys.as_certificate())?;
                    }
                }
                Err(error) => return Err(error.context("the certificate that the node serves with")),
            }
        }
        if client_is_due {
            let next = self.ask(CLIENT_SIGNER, "client auth", None).await.context("the node's own certificate")?;
            self.be(next).await?;
        }
        Ok(())
    }

    /// Asks for a certificate of a new key, and waits until it is there.
    async fn ask(&self, signer: &str, purpose: &str, address: Option<IpAddr>) -> Result<NodeCertificate> {
        let node = &self.membership.node;
        let request = NodeRequest::new(node, address)?;
        let all: Api<CertificateSigningRequest> = Api::all(self.membership.client()?);
        let wanted = CertificateSigningRequest {
            metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.pem.clone().into_bytes()),
                signer_name: signer.to_owned(),
                usages: Some(vec!["digital signature".to_owned(), purpose.to_owned()]),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let asked = all.create(&PostParams::default(), &wanted).await.context("cannot ask for a certificate")?;
        let name = asked.metadata.name.context("the request has no name")?;
        let answer = tokio::time::timeout(ANSWER_WAIT, answer(all, &name)).await.with_context(|| {
            format!(
                "nobody answered the request within five minutes; approve it with `kubectl certificate approve {name}`"
            )
        })??;
        let found = request.answered(answer).context("the certificate is another key's")?;
        match found.node() {
            Some((own, (_, end))) if own == *node && end > now() => Ok(found),
            Some(_) | None => bail!("the certificate is not one of this node, or is over"),
        }
    }

    fn serve_with(&mut self, serving: NodeCertificate) -> Result<()> {
        let path = self.dir.join(SERVING);
        pki::write_pair(&path, &serving).with_context(|| format!("cannot write {}", path.display()))?;
        self.membership.shown.replace(&self.membership.keys, Some(&serving))?;
        self.serving = Some(serving);
        info!("the certificate that the node serves with was renewed");
        Ok(())
    }

    /// Becomes who `next` says, if the server believes that.
    async fn be(&mut self, next: NodeCertificate) -> Result<()> {
        let mut successor = self.membership.clone();
        successor.keys.certificate.clone_from(&next.certificate);
        successor.keys.key.clone_from(&next.key);
        successor.life = next.node().context("it is not a node's")?.1;
        successor.shown = NodeCertificates::new(&successor.keys, None)?;
        let nodes: Api<Node> = Api::all(successor.client()?);
        nodes.get_opt(&successor.node).await.context("the server does not take the new certificate")?;
        successor.keep(&self.dir)?;
        self.membership.shown.replace(&successor.keys, self.serving.as_ref())?;
        successor.shown = self.membership.shown.clone();
        self.membership = successor;
        info!("the node's certificate was renewed");
        Ok(())
    }
}

/// The certificate that is the answer to the request called `name`.
async fn answer(all: Api<CertificateSigningRequest>, name: &str) -> Result<String> {
    let (out, mut seen) = mpsc::channel(8);
    let following = tokio::spawn(client::follow(all, Some(format!("metadata.name={name}")), out));
    let found = async {
        while let Some(update) = seen.recv().await {
            let requests = match update {
                WatchUpdate::Listed(all) if all.is_empty() => bail!("the request {name} was removed"),
                WatchUpdate::Listed(all) => all,
                WatchUpdate::Changed(one) => vec![one],
                WatchUpdate::Removed(_) => bail!("the request {name} was removed"),
            };
            for status in requests.into_iter().filter_map(|request| request.status) {
                let conditions = status.conditions.unwrap_or_default();
                if let Some(ended) = conditions.iter().find(|own| matches!(own.type_.as_str(), "Denied" | "Failed")) {
                    let text = ended.message.as_deref().unwrap_or_default();
                    bail!("the request {name} was refused ({}): {text}", ended.type_);
                }
                if let Some(ByteString(pem)) = status.certificate.filter(|pem| !pem.0.is_empty()) {
                    return String::from_utf8(pem).context("the certificate is not PEM");
                }
            }
        }
        bail!("the server went away")
    };
    let found = found.await;
    following.abort();
    found
}

/// When a certificate that is good from and until these is renewed, all in seconds since 1970.
fn due((from, until): (i64, i64), place: i64) -> i64 {
    let (life, part) = (until.saturating_sub(from), RENEW_AFTER + SPREAD * place / 1000);
    from.saturating_add(life / 1000 * part + life % 1000 * part / 1000)
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use serde_json::json;
    use server::{Identity, NoNodes, Server, ServerConfig, TokenKey};
    use tokio::net::TcpListener;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn certificate_is_renewed_in_the_fourth_fifth_of_its_life_or_a_little_before() {
        let life = (1_000, 2_000);
        assert_eq!([0, 500, 1_000].map(|place| due(life, place)), [1_700, 1_800, 1_900]);
        assert_eq!(due((i64::MAX - 5, i64::MAX), 0), i64::MAX - 2, "no time is too far away");
    }

    /// [CL-64] What the node shows is replaced while it runs: what follows its server goes on, and a restart finds the successor.
    #[tokio::test]
    async fn node_renews_both_certificates_and_its_watches_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let keys = pki::ensure(&dir.path().join("pki"), &["127.0.0.1".to_owned()]).unwrap();
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(ServerConfig {
            store: store::Store::open(&dir.path().join("store")).await.unwrap(),
            advertise: address,
            version: String::new(),
            nodes: Arc::new(NoNodes),
            service_range: server::ServiceRange::default(),
            token_key: TokenKey::ensure(&dir.path().join("pki")).unwrap(),
        })
        .await
        .unwrap();
        server.sign_certificates_by(&keys);
        let (served, tls) = (server.clone(), keys.server_config().unwrap());
        let serving = tokio::spawn(async move { served.serve(listener, tls, std::future::pending()).await });
        let admin: Api<Node> = Api::all(kube::Client::new(server.service_as(Identity::admin()), "default"));
        let mut node = Node::default();
        node.metadata.name = Some("n1".to_owned());
        admin.create(&PostParams::default(), &node).await.unwrap();
        let addresses = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }] } });
        let merge = kube::api::Patch::Merge(addresses);
        admin.patch_status("n1", &kube::api::PatchParams::default(), &merge).await.unwrap();

        let home = dir.path().join("node");
        std::fs::create_dir(&home).unwrap();
        let brought = dir.path().join("kubeconfig");
        pki::write_kubeconfig(&brought, &keys.node_kubeconfig("n1", &format!("https://{address}")).unwrap()).unwrap();
        let membership = Membership::resolve(&home, Some(&brought), None).unwrap();
        membership.keep(&home).unwrap();
        let (out, mut seen) = mpsc::channel(8);
        let nodes: Api<Node> = Api::all(membership.client().unwrap());
        let following = tokio::spawn(client::follow(nodes, Some("metadata.name=n1".to_owned()), out));
        assert!(matches!(seen.recv().await, Some(WatchUpdate::Listed(all)) if all.len() == 1));

        let mut renewal = NodeRenewal::new(&home, membership.clone(), HERE).unwrap();
        let (from, until) = membership.life;
        assert!(renewal.due_in(now()) > Duration::from_secs(200 * 24 * 60 * 60));
        renewal.renew(now()).await.unwrap();
        assert_eq!(renewal.membership.life, (from, until), "nothing is due");
        renewal.renew(until - 1).await.unwrap();

        let kept = Membership::kept(&home).unwrap();
        let again = Membership::resolve(&home, Some(&brought), None).unwrap();
        assert_eq!(again.keys.certificate, kept.keys.certificate, "what was brought does not take the node back");
        assert_ne!(kept.keys.certificate, membership.keys.certificate);
        assert!(kept.life.1 < now() + 31 * 24 * 60 * 60, "nodes have theirs for a month");
        let served = kept_serving(&home, "n1").unwrap().expect("another certificate to serve with");
        assert_ne!(served.certificate, kept.keys.certificate);
        // Whoever had the old one has the new one, on connections that begin now.
        let fresh: Api<Node> = Api::all(membership.client().unwrap());
        fresh.get("n1").await.unwrap();
        let label = kube::api::Patch::Merge(json!({ "metadata": { "labels": { "seen": "yes" } } }));
        admin.patch("n1", &kube::api::PatchParams::default(), &label).await.unwrap();
        let update = tokio::time::timeout(Duration::from_secs(60), seen.recv()).await.unwrap().unwrap();
        assert!(matches!(update, WatchUpdate::Changed(node) if node.metadata.labels.is_some()), "the watch went on");
        following.abort();
        serving.abort();
    }
}
