//! Someone who wants something of an API that dies again and again.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::Value;
use tokio::sync::watch;

use crate::instance::client;
use crate::pods::SOON;

/// What somebody wants of the API.
#[derive(Clone)]
pub enum ApiCall {
    /// This pod.
    Create(Value),
    /// That it goes.
    Delete,
    /// That it goes within so many seconds.
    DeleteWithin(u32),
}

/// Someone who does not give up before the API has said yes.
pub struct Caller {
    kubeconfig: PathBuf,
    /// How often the instance has come up.
    lives: watch::Receiver<usize>,
}

impl Caller {
    /// Of the instance that this file leads to, which tells how often it has come up.
    pub fn new(kubeconfig: PathBuf, lives: watch::Receiver<usize>) -> Self {
        Self { kubeconfig, lives }
    }

    /// Asks until the answer is yes.
    pub async fn call(mut self, name: String, wish: ApiCall) -> Result<()> {
        let mut asked_before = false;
        loop {
            let life = *self.lives.borrow_and_update();
            match (self.try_once(&name, &wish).await, &wish) {
                (Ok(()), _) => return Ok(()),
                // It was done, and the answer was lost.
                (Err(kube::Error::Api(no)), ApiCall::Create(_)) if asked_before && no.reason == "AlreadyExists" => {
                    return Ok(());
                }
                (Err(kube::Error::Api(no)), ApiCall::Delete | ApiCall::DeleteWithin(_))
                    if asked_before && no.reason == "NotFound" =>
                {
                    return Ok(());
                }
                (Err(kube::Error::Api(no)), _) if matches!(no.code, 400..500) => bail!("{name}: refused: {no:?}"),
                (Err(error), _) => {
                    let next = tokio::time::timeout(SOON, self.lives.wait_for(|now| *now != life)).await;
                    next.with_context(|| format!("{name}: the API is there but says {error}"))??;
                }
            }
            asked_before = true;
        }
    }

    async fn try_once(&self, name: &str, wish: &ApiCall) -> kube::Result<()> {
        let unreachable = |error: anyhow::Error| kube::Error::Service(error.into());
        let pods: Api<Pod> = Api::namespaced(client(&self.kubeconfig).await.map_err(unreachable)?, "default");
        match wish {
            ApiCall::Create(manifest) => {
                let pod = serde_json::from_value(manifest.clone()).map_err(kube::Error::SerdeError)?;
                pods.create(&PostParams::default(), &pod).await.map(drop)
            }
            ApiCall::Delete => pods.delete(name, &DeleteParams::default()).await.map(drop),
            ApiCall::DeleteWithin(seconds) => {
                pods.delete(name, &DeleteParams::default().grace_period(*seconds)).await.map(drop)
            }
        }
    }
}
