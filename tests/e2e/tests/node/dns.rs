//! Names as pods look them up: with the resolver of their own C library, by the file that the node wrote for them.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::pods::PodWatch;
use e2e::{Instance, Kubectl};
use serde_json::{Value, json};

fn pod(name: &str, app: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": app } },
        "spec": {
            "terminationGracePeriodSeconds": 1, "hostname": name, "subdomain": app,
            "containers": [{ "name": "app", "image": "busybox", "command": ["sh", "-c", script] }],
        },
    })
}

/// One that looks names up as most programs do, by the machine's C library; busybox itself asks servers directly.
fn client_pod(name: &str) -> Value {
    let mut pod = pod(name, name, "sleep 1000");
    let mounts = [("loader", "/lib64"), ("library", "/lib/x86_64-linux-gnu"), ("getent", "/usr/bin/getent")];
    let volume = |(name, path): &(&str, &str)| json!({ "name": name, "hostPath": { "path": path } });
    let mount = |(name, path): &(&str, &str)| json!({ "name": name, "mountPath": path, "readOnly": true });
    pod["spec"]["volumes"] = mounts.iter().map(volume).collect();
    pod["spec"]["containers"][0]["volumeMounts"] = mounts.iter().map(mount).collect();
    pod
}

fn service(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

/// [DN-11] [DN-20] [DN-26]
#[tokio::test(flavor = "multi_thread")]
async fn pods_find_services_and_each_other_by_name_until_they_leave() -> Result<()> {
    let instance = Instance::start().await?;
    let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
    let port = json!([{ "name": "http", "port": 80, "targetPort": 8080 }]);
    kubectl.apply(&service("web", json!({ "selector": { "app": "web" }, "ports": port }))).await?;
    kubectl.apply(&service("db", json!({ "selector": { "app": "db" }, "ports": port, "clusterIP": "None" }))).await?;
    let serve = "mkdir /www && echo hello >/www/index.html && exec httpd -f -p 8080 -h /www";
    let sleep = "sleep 1000";
    let pods = [pod("web-0", "web", serve), pod("db-0", "db", sleep), pod("db-1", "db", sleep), client_pod("me")];
    for pod in pods {
        let mut watch = PodWatch::on(&client, pod["metadata"]["name"].as_str().unwrap()).await?;
        kubectl.apply(&pod).await?;
        watch.ready().await?;
    }
    let sees =
        async |script: &str| kubectl.run(&["exec", "me", "--", "sh", "-c", script]).await.context(script.to_owned());
    let address = async |of: &str, path: &str| kubectl.run(&["get", of, "-o", &format!("jsonpath={path}")]).await;

    let file = sees("cat /etc/resolv.conf").await?;
    let expected = "nameserver 10.87.0.10\nsearch default.svc.cluster.local svc.cluster.local cluster.local";
    ensure!(file.starts_with(expected) && file.ends_with("\noptions ndots:5\n"), "{file}");

    // What is ready a moment ago is in no record yet: it comes with the endpoints.
    let until = |condition: &str| {
        format!(
            "for i in $(seq 2000); do if {condition}; then exec echo yes; fi; sleep 0.02; done; {condition}; echo no"
        )
    };
    // The static busybox of the image has no resolver of its own for programs: the C library's answer is handed to it.
    let page = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | \
                nc -w 5 $(/usr/bin/getent ahostsv4 web | head -n 1 | cut -d ' ' -f 1) 80 | grep -q hello";
    let found = sees(&until(page)).await?;
    ensure!(found == "yes\n", "{found}");
    let api = sees("/usr/bin/getent hosts kubernetes.default").await?;
    ensure!(api.starts_with("10.87.0.1 ") && api.ends_with(" kubernetes.default.svc.cluster.local\n"), "{api}");
    ensure!(sees("/usr/bin/getent hosts nobody.default.svc.cluster.local; echo $?").await? == "2\n", "it is not there");
    let own = address("service/web", "{.spec.clusterIP}").await?;
    let web = sees("nslookup web.default.svc.cluster.local 2>&1").await?;
    ensure!(web.contains(&format!("Address: {own}\n")), "{web} {own}");
    for name in ["db-0", "db-1"] {
        let at = address(&format!("pod/{name}"), "{.status.podIP}").await?;
        let query = format!("nslookup db.default.svc.cluster.local 2>&1 | grep -q 'Address: {at}$'");
        ensure!(sees(&until(&query)).await? == "yes\n", "{name} is behind the service");
        let by_name = sees(&format!("nslookup {name}.db.default.svc.cluster.local 2>&1")).await?;
        ensure!(by_name.contains(&format!("Address: {at}\n")), "{by_name} {at}");
        let dashed = at.replace('.', "-");
        let as_pod = sees(&format!("nslookup {dashed}.default.pod.cluster.local 2>&1")).await?;
        ensure!(as_pod.contains(&format!("Address: {at}\n")), "{as_pod} {at}");
        let reverse = sees(&format!("nslookup {at} 2>&1")).await?;
        ensure!(reverse.contains(&format!("{name}.db.default.svc.cluster.local")), "{reverse}");
    }
    let stranger = sees("nslookup nobody.default.svc.cluster.local 2>&1; true").await?;
    ensure!(stranger.contains("NXDOMAIN"), "{stranger}");

    kubectl.run(&["delete", "pod", "db-1"]).await?;
    let gone = until("nslookup db-1.db.default.svc.cluster.local 2>&1 | grep -q NXDOMAIN");
    ensure!(sees(&gone).await? == "yes\n", "the record of a pod that left is gone");
    let left = sees("nslookup db.default.svc.cluster.local 2>&1").await?;
    let at = address("pod/db-0", "{.status.podIP}").await?;
    ensure!(left.contains(&format!("Address: {at}\n")) && left.matches("Address: ").count() == 1, "{left}");

    let service = kubectl.run(&["get", "service,endpointslice", "-n", "kube-system"]).await?;
    ensure!(service.contains("10.87.0.10") && service.contains("53/UDP,53/TCP"), "{service}");
    let metrics = kubectl.run(&["get", "--raw", "/metrics"]).await?;
    ensure!(metrics.contains("adieu_dns_requests_total{proto=\"udp\",source=\"local\",rcode=\"NOERROR\"}"));
    Ok(())
}
