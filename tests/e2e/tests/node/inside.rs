//! The API as pods reach it: by the address that `default/kubernetes` leads to, with the token and the CA that every pod is given.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Result, ensure};
use e2e::pods::PodWatch;
use e2e::{Instance, Kubectl, workspace};
use serde_json::{Value, json};

/// A pod with busybox, and a kubectl that thinks it is on an ordinary cluster; the rest of it is the machine's C library.
pub(crate) fn client_pod(name: &str) -> Value {
    let host = |path: &str| json!({ "path": path });
    let kubectl = workspace().join("target/tools/kubectl-newest/usr/bin");
    let library = "/lib/x86_64-linux-gnu";
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app", "image": "busybox", "command": ["sleep", "1000"],
                "volumeMounts": [
                    { "name": "tools", "mountPath": "/tools", "readOnly": true },
                    { "name": "loader", "mountPath": "/lib64", "readOnly": true },
                    { "name": "library", "mountPath": library, "readOnly": true },
                ],
            }],
            "volumes": [
                { "name": "tools", "hostPath": host(&kubectl.display().to_string()) },
                { "name": "loader", "hostPath": host("/lib64") },
                { "name": "library", "hostPath": host(library) },
            ],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn api_answers_a_client_library_in_a_pod_at_the_address_the_service_leads_to() -> Result<()> {
    let instance = Instance::start().await?;
    let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
    let first = instance.pod_cidr().replace(".0.0/16", ".0.1");
    let port = instance.api().rsplit(':').next().unwrap().to_owned();

    let leads_to = |of: &'static str, path: &'static str| {
        let kubectl = &kubectl;
        async move { kubectl.run(&["get", of, "kubernetes", "-o", &format!("jsonpath={path}")]).await }
    };
    let endpoints = leads_to("endpoints", "{.subsets[0].addresses[0].ip}:{.subsets[0].ports[0].port}").await?;
    ensure!(endpoints == format!("{first}:{port}"), "{endpoints}");
    let slice = leads_to("endpointslice", "{.endpoints[0].addresses[0]}:{.ports[0].port}").await?;
    ensure!(slice == endpoints, "{slice}");

    // The node is known by an address that others can reach.
    let internal = kubectl
        .run(&["get", "nodes", "-o", "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}"])
        .await?;
    let own = String::from_utf8(tokio::process::Command::new("ip").args(["-o", "address"]).output().await?.stdout)?;
    let routes = String::from_utf8(tokio::process::Command::new("ip").args(["route"]).output().await?.stdout)?;
    ensure!(own.contains(&format!(" {internal}/")), "{internal} is not of this machine: {own}");
    ensure!((internal == first) != routes.contains("default"), "{internal}: {routes}");

    kubectl
        .run(&["create", "clusterrolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:default"])
        .await?;
    let mut watch = PodWatch::on(&client, "client").await?;
    kubectl.apply(&client_pod("client")).await?;
    watch.ready().await?;
    // As libraries find it: by two variables, a token and a CA in files. The address of the service itself is the proxy's to lead here.
    let script = format!(
        "export KUBERNETES_SERVICE_HOST={first} KUBERNETES_SERVICE_PORT={port} HOME=/tmp; /tools/kubectl get pods -o name 2>&1"
    );
    let seen = kubectl.run(&["exec", "client", "--", "sh", "-c", &script]).await?;
    ensure!(seen == "pod/client\n", "{seen}");
    let refused = script.replace("get pods -o name", "delete pod client");
    let seen = kubectl.run(&["exec", "client", "--", "sh", "-c", &format!("{refused}; true")]).await?;
    ensure!(seen.contains("system:serviceaccount:default:default") && seen.contains("Forbidden"), "{seen}");
    Ok(())
}
