//! `kube`, the client every part of the process uses, over the in-process service and over TLS.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api as Kube, Client, ResourceExt as _};
use server::Identity;

use crate::harness::{Api, configmap, pod};
use crate::transport::Tls;

fn client(api: &Api) -> Client {
    Client::new(api.server.service_as(Identity::admin()), "default")
}

#[tokio::test]
async fn a_pods_life_through_the_typed_client_in_process() {
    let api = Api::start().await;
    let pods: Kube<Pod> = Kube::default_namespaced(client(&api));
    let made = pods.create(&PostParams::default(), &serde_json::from_value(pod("p")).unwrap()).await.unwrap();
    assert_eq!(made.spec.unwrap().termination_grace_period_seconds, Some(30));
    let mut events =
        pods.watch(&WatchParams::default(), &made.metadata.resource_version.unwrap()).await.unwrap().boxed();
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1);
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap().unwrap(), WatchEvent::Modified(p) if p.name_any() == "p"));
    assert!(matches!(events.try_next().await.unwrap().unwrap(), WatchEvent::Deleted(p) if p.name_any() == "p"));
    assert!(pods.get_opt("p").await.unwrap().is_none());
}

#[tokio::test]
async fn the_admin_kubeconfig_lets_a_client_in() {
    let api = Api::start().await;
    let tls = Tls::serve(&api).await;
    let text = tls.pki.admin_kubeconfig(&format!("https://{}", tls.address));
    let kubeconfig: kube::config::Kubeconfig = serde_json::from_str(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().minor, "36");
    let maps: Kube<ConfigMap> = Kube::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &serde_json::from_value(configmap("x")).unwrap()).await.unwrap();
    let gone = maps.delete("x", &DeleteParams::default()).await.unwrap();
    assert!(gone.right().unwrap().is_success());
    let namespaces: Kube<Namespace> = Kube::all(client);
    assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 4);
}
