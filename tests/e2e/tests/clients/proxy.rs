//! What pods serve, reached through the API: `pods/proxy`, `services/proxy`, `nodes/proxy`, and `kubectl proxy` in front of them.

use anyhow::{Context, Result, ensure};
use e2e::pods::PodWatch;
use e2e::{Instance, Kubectl, complaints};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const WELCOME: &str = "Welcome to nginx!";

#[tokio::test(flavor = "multi_thread")]
async fn pods_services_and_nodes_are_reached_through_the_api() -> Result<()> {
    let instance = Instance::start().await?;
    let kubectl = Kubectl::newest(&instance)?;
    let mut watch = PodWatch::on(&instance.client().await?, "web").await?;
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "nginx", "image": "nginx",
            "ports": [{ "containerPort": 80, "name": "http" }],
            "readinessProbe": { "httpGet": { "path": "/", "port": 80 }, "periodSeconds": 1 } }] },
    });
    kubectl.apply(&manifest).await?;
    watch.ready().await?;
    let pod = watch.last.take().context("it was seen")?;
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("an address")?;
    let (uid, node) = (pod.metadata.uid.context("a uid")?, pod.spec.and_then(|spec| spec.node_name).context("a node")?);

    pods(&kubectl).await?;
    services(&kubectl, &ip, &uid).await?;
    let healthy = kubectl.run(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/healthz")]).await?;
    assert_eq!(healthy, "ok");
    in_a_browser(&kubectl).await?;
    complaints::ensure_none(&instance, &[])
}

async fn raw(kubectl: &Kubectl, path: &str) -> Result<String> {
    kubectl.run(&["get", "--raw", &format!("/api/v1/namespaces/default/{path}")]).await
}

/// What kubectl says of a path that leads nowhere.
async fn refused(kubectl: &Kubectl, path: &str) -> Result<String> {
    let answer = raw(kubectl, path).await;
    Ok(answer.err().with_context(|| format!("{path} is answered"))?.to_string())
}

async fn pods(kubectl: &Kubectl) -> Result<()> {
    // Without a slash it is found, too: the client is sent there.
    for name in ["web/proxy/", "web:80/proxy/", "http:web:http/proxy/", "web/proxy"] {
        let page = raw(kubectl, &format!("pods/{name}")).await?;
        ensure!(page.contains(WELCOME), "{name}: {page}");
    }
    let missing = refused(kubectl, "pods/web/proxy/no-such-page").await?;
    ensure!(missing.contains("NotFound"), "the backend's own answer: {missing}");
    let silent = refused(kubectl, "pods/web:81/proxy/").await?;
    ensure!(silent.contains("ServiceUnavailable"), "{silent}");
    ensure!(silent.contains("error trying to reach service: dial tcp"), "{silent}");
    ensure!(silent.contains(":81: connect: connection refused"), "{silent}");
    let nobody = refused(kubectl, "pods/none/proxy/").await?;
    ensure!(nobody.contains("pods \"none\" not found"), "{nobody}");
    Ok(())
}

async fn services(kubectl: &Kubectl, ip: &str, uid: &str) -> Result<()> {
    // Without a selector: nobody but this test says where it leads.
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "shop" },
        "spec": { "ports": [{ "name": "http", "port": 8080, "targetPort": 80 }] } });
    kubectl.apply(&service).await?;
    let nobody = refused(kubectl, "services/shop:http/proxy/").await?;
    ensure!(nobody.contains("no endpoints available for service \"shop:http\""), "{nobody}");
    let target = json!({ "kind": "Pod", "namespace": "default", "name": "web", "uid": uid });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "shop-1", "labels": { "kubernetes.io/service-name": "shop" } },
        "ports": [{ "name": "http", "port": 80 }],
        "endpoints": [{ "addresses": [ip], "conditions": { "ready": true }, "targetRef": target }],
    });
    kubectl.apply(&slice).await?;
    for name in ["shop:http", "shop:8080", "http:shop:8080"] {
        let page = raw(kubectl, &format!("services/{name}/proxy/")).await?;
        ensure!(page.contains(WELCOME), "{name}: {page}");
    }
    let other = refused(kubectl, "services/shop:80/proxy/").await?;
    ensure!(other.contains("no service port 80 found for service \"shop\""), "{other}");
    let missing = refused(kubectl, "services/none/proxy/").await?;
    ensure!(missing.contains("services \"none\" not found"), "{missing}");
    Ok(())
}

/// As through `kubectl proxy` on somebody's own machine.
async fn in_a_browser(kubectl: &Kubectl) -> Result<()> {
    let mut proxy = kubectl.follow(&["proxy", "--port=0"])?;
    let line = proxy.next().await?;
    let at = line.strip_prefix("Starting to serve on ").with_context(|| line.clone())?;
    let ask = async |path: &str| -> Result<String> {
        let mut stream = TcpStream::connect(at).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let pod = "/api/v1/namespaces/default/pods/web/proxy";
    let sent_on = ask(pod).await?;
    ensure!(sent_on.starts_with("HTTP/1.1 301") && sent_on.contains(&format!("Location: {pod}/\r\n")), "{sent_on}");
    let page = ask(&format!("{pod}/")).await?;
    ensure!(page.starts_with("HTTP/1.1 200") && page.contains(WELCOME), "{page}");
    Ok(())
}
