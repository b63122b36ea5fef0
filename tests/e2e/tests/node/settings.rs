//! What a manifest may ask for beyond a program and an image, seen from inside pods of a running instance.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, waits_for};
use e2e::{Instance, Kubectl};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "color": "red" } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "app", "image": "busybox", "command": ["sh", "-c", "sleep 1000"] }],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn container_settings_match_their_manifest() -> Result<()> {
    let instance = Instance::start().await?;
    let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
    let sees = async |pod: &str, script: &str| kubectl.run(&["exec", pod, "--", "sh", "-c", script]).await;

    kubectl.run(&["create", "configmap", "config", "--from-literal=a=1", "--from-literal=b=1"]).await?;
    kubectl.run(&["create", "secret", "generic", "secret", "--from-literal=key=hunter2"]).await?;
    let mut watch = PodWatch::on(&client, "rich").await?;
    kubectl.apply(&pod("rich", rich())).await?;
    watch.ready().await?;

    for (script, expected) in [
        ("cat /config/a /config/b /all/key; readlink /config/a", "11hunter2..data/a\n"),
        ("cat /all/labels", "color=\"red\""),
        ("cat /one/a; cat /sub/rich/x 2>/dev/null; ls -d /sub", "1/sub\n"),
        ("grep ' /memory ' /proc/mounts | grep -c size=1024k", "1\n"),
        ("stat -c %a /memory", "3777\n"),
        // What the API gives never reaches a disk.
        ("grep -cE '^adieu /(config|all) tmpfs ro' /proc/mounts", "2\n"),
        ("touch /memory/x /disk/x && ls -n /memory/x /disk/x | grep -c ' 2000 '", "2\n"),
        ("grep db.internal /etc/hosts", "10.1.2.3\tdb.internal\n"),
        ("tail -n 2 /etc/resolv.conf", "search pod.example\noptions ndots:2\n"),
        ("cat /proc/1/comm", "adieu-pod\n"),
        ("cat /proc/sys/net/ipv4/tcp_syncookies", "0\n"),
        ("cat /proc/self/oom_score_adj", "1000\n"),
        ("id -G", "1000 2000 3000\n"),
        ("stat -Lc '%a %u %g' /var/run/secrets/kubernetes.io/serviceaccount/token", "640 1000 2000\n"),
        ("touch /x 2>&1; stat -c %a /config/..data/a", "touch: /x: Read-only file system\n644\n"),
    ] {
        let seen = sees("rich", script).await.context(script)?;
        ensure!(seen.ends_with(expected), "{script}: {seen:?}");
    }

    // A second reader of the same ConfigMap.
    let mut watch = PodWatch::on(&client, "second").await?;
    kubectl.apply(&pod("second", second())).await?;
    watch.ready().await?;

    // All keys of a volume change at once, and a label shows where it is asked for.
    let patch = json!({ "data": { "a": "2", "b": "2" } }).to_string();
    kubectl.run(&["patch", "configmap", "config", "-p", &patch]).await?;
    kubectl.run(&["label", "pod", "rich", "color=blue", "--overwrite"]).await?;
    let changed = "for i in $(seq 1000); do \
                     at=$(readlink /config/..data); both=$(cat /config/..data/a /config/..data/b); \
                     test $at = $(readlink /config/..data) || continue; \
                     case $both in 11|22) ;; *) echo torn: $both; exit 1;; esac; \
                     test $both = 22 && grep -q blue /all/labels && exec echo changed; sleep 0.02; \
                   done; echo never";
    ensure!(sees("rich", changed).await? == "changed\n");
    ensure!(sees("rich", "cat /one/a").await? == "1", "what was mounted by subPath stays");
    // So it goes after the node's agent was killed, too.
    let mut instance = instance;
    instance.kill_9().await?;
    instance.up().await?;
    kubectl.run(&["patch", "configmap", "config", "-p", &patch.replace('2', "3")]).await?;
    let again = "for i in $(seq 1000); do test $(cat /config/a) = 3 && exec echo changed; sleep 0.02; done";
    ensure!(sees("rich", again).await? == "changed\n");
    ensure!(sees("second", again).await? == "changed\n");

    // What cannot be had is said where people look.
    let mut watch = PodWatch::on(&client, "root").await?;
    kubectl.apply(&pod("root", json!({ "securityContext": { "runAsNonRoot": true } }))).await?;
    watch.until("refused", |pod| waits_for(pod, "app").is_some_and(|why| why != "ContainerCreating")).await?;
    let mut watch = PodWatch::on(&client, "users").await?;
    kubectl.apply(&pod("users", json!({ "hostUsers": false }))).await?;
    watch.until("refused", |pod| waits_for(pod, "app") == Some("CreateContainerConfigError")).await?;
    let mut watch = PodWatch::on(&client, "typo").await?;
    let context = json!({ "capabilities": { "drop": ["NET_RAWW"] } });
    let image = json!({ "name": "app", "image": "busybox", "securityContext": context });
    kubectl.apply(&pod("typo", json!({ "containers": [image] }))).await?;
    watch.until("refused", |pod| waits_for(pod, "app") == Some("CreateContainerConfigError")).await?;
    let mut watch = PodWatch::on(&client, "named").await?;
    let labels = json!({ "seLinuxOptions": { "level": "s0" } });
    kubectl
        .apply(&pod("named", json!({ "subdomain": "web", "setHostnameAsFQDN": true, "securityContext": labels })))
        .await?;
    watch.ready().await?;
    let full = "named.web.default.svc.cluster.local";
    let seen = sees("named", "hostname; cat /etc/hostname; echo $HOSTNAME; tail -n 1 /etc/hosts | cut -f 2-").await?;
    ensure!(seen == format!("{full}\n{full}\n{full}\n{full}\tnamed\n"), "{seen:?}");
    // The node, as its pods reach it.
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let port = listener.local_addr()?.port();
    let host_ip = kubectl.run(&["get", "pod", "named", "-o", "jsonpath={.status.hostIP}"]).await?;
    let heard = async {
        let (mut caller, _) = tokio::time::timeout(SOON, listener.accept()).await.context("nobody calls")??;
        Ok(caller.write_all(b"the node\n").await?)
    };
    let script = format!("nc {host_ip} {port}");
    let (answer, ()) = tokio::try_join!(sees("named", &script), heard)?;
    ensure!(answer == "the node\n", "{host_ip}: {answer:?}");
    let mut watch = PodWatch::on(&client, "on-host").await?;
    kubectl.apply(&pod("on-host", json!({ "hostNetwork": true }))).await?;
    watch.ready().await?;
    ensure!(sees("on-host", "hostname").await? == std::fs::read_to_string("/proc/sys/kernel/hostname")?);
    let told = async {
        loop {
            let events = kubectl.run(&["get", "events", "-o", "custom-columns=R:.reason,M:.message"]).await?;
            let all = [
                "SettingNotApplied",
                "image will run as root",
                "unknown capability \"NET_RAWW\"",
                "seLinuxOptions are not applied",
            ];
            if all.iter().all(|text| events.contains(text)) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, told).await.context("events that tell of it")??;
    instance.down().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_meets_the_limit_that_the_node_gives_every_pod() -> Result<()> {
    let mut instance = Instance::start_with(&["--pod-max-pids", "40"]).await?;
    let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
    let run = |name: &str, script: &str| json!({ "name": name, "image": "busybox", "command": ["sh", "-c", script] });
    let bomb = run("bomb", "while :; do sleep 1000 & done");
    let beside = run("beside", "sleep 1000");
    let mut watch = PodWatch::on(&client, "bomber").await?;
    kubectl.apply(&pod("bomber", json!({ "containers": [beside, bomb], "restartPolicy": "Never" }))).await?;
    // Where no more processes can be had a shell gives up, and says so.
    watch
        .until("the bomb meets its limit", |pod| {
            e2e::pods::state(pod, "bomb").is_some_and(|state| state.terminated.is_some())
        })
        .await?;
    let said = kubectl.run(&["logs", "bomber", "-c", "bomb"]).await?;
    ensure!(said.contains("can't fork"), "{said:?}");
    let events = kubectl.run(&["get", "events"]).await?;
    ensure!(!events.contains("SettingNotApplied"), "{events}");
    // With the bomb its processes are gone, and there is room again.
    let well = kubectl.run(&["exec", "bomber", "-c", "beside", "--", "sh", "-c", "(true); echo well"]).await?;
    ensure!(well == "well\n", "{well:?}");
    instance.down().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_node_leads_to_the_pod_that_asks_for_it() -> Result<()> {
    let mut instance = Instance::start().await?;
    let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
    // Below the ports that connections leave from, so that nobody comes to hold it by chance.
    let free = |port: &u16| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let port = (20_000..30_000).find(free).context("no free port")?;
    let answer =
        || -> std::io::Result<String> { std::io::read_to_string(std::net::TcpStream::connect(("127.0.0.1", port))?) };
    let nodes = kubectl.run(&["get", "nodes", "-o", "name"]).await?;
    let node = nodes.trim().trim_start_matches("node/");
    let asking = |name: &str| {
        let command = ["nc", "-ll", "-p", "80", "-e", "echo", name];
        let ports = json!([{ "containerPort": 80, "hostPort": port }]);
        let container = json!({ "name": "app", "image": "busybox", "command": command, "ports": ports });
        // Past the scheduler, which would keep the second away.
        pod(name, json!({ "nodeName": node, "containers": [container] }))
    };
    let mut first = PodWatch::on(&client, "first").await?;
    kubectl.apply(&asking("first")).await?;
    first.ready().await?;
    let heard = async |words: &str| {
        let hearing = async {
            while !answer().is_ok_and(|heard| heard == words) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, hearing).await.with_context(|| format!("no {words:?} at port {port}"))
    };
    heard("first\n").await?;
    // Nothing is missing while the agent is away, or when it is back.
    instance.kill_9().await?;
    ensure!(answer()? == "first\n");
    instance.up().await?;
    heard("first\n").await?;
    // Whoever asks for the same is turned away while it is kept, and waits while its holder leaves.
    let mut second = PodWatch::on(&client, "second").await?;
    kubectl.apply(&asking("second")).await?;
    let turned_away = |pod: &Pod| {
        let status = pod.status.as_ref();
        e2e::pods::phase(pod) == Some("Failed") && status.and_then(|it| it.reason.as_deref()) == Some("NodePorts")
    };
    second.until("turned away", turned_away).await?;
    kubectl.run(&["delete", "pod", "first", "--wait=false"]).await?;
    let mut third = PodWatch::on(&client, "third").await?;
    kubectl.apply(&asking("third")).await?;
    third.ready().await?;
    heard("third\n").await?;
    instance.down().await?;
    ensure!(answer().is_err(), "nothing is left of it");
    Ok(())
}

fn second() -> Value {
    json!({
        "containers": [{
            "name": "app", "image": "busybox", "command": ["sh", "-c", "sleep 1000"],
            "volumeMounts": [{ "name": "config", "mountPath": "/config" }],
        }],
        "volumes": [{ "name": "config", "configMap": { "name": "config" } }],
    })
}

fn rich() -> Value {
    json!({
        "shareProcessNamespace": true,
        "hostAliases": [{ "ip": "10.1.2.3", "hostnames": ["db.internal"] }],
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["10.9.9.9"], "searches": ["pod.example"], "options": [{ "name": "ndots", "value": "2" }],
        },
        "securityContext": {
            "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000, "supplementalGroups": [3000],
            "sysctls": [{ "name": "net.ipv4.tcp_syncookies", "value": "0" }],
        },
        "containers": [{
            "name": "app", "image": "busybox", "command": ["sh", "-c", "sleep 1000"],
            "securityContext": { "readOnlyRootFilesystem": true },
            "env": [{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
            "volumeMounts": [
                { "name": "config", "mountPath": "/config" },
                { "name": "config", "mountPath": "/one/a", "subPath": "a" },
                { "name": "disk", "mountPath": "/sub", "subPathExpr": "pods/$(POD)" },
                { "name": "all", "mountPath": "/all" },
                { "name": "memory", "mountPath": "/memory" },
                { "name": "disk", "mountPath": "/disk" },
            ],
        }],
        "volumes": [
            { "name": "config", "configMap": { "name": "config" } },
            { "name": "disk", "emptyDir": { "sizeLimit": "1Gi" } },
            { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
            { "name": "all", "projected": { "sources": [
                { "secret": { "name": "secret" } },
                { "configMap": { "name": "config", "items": [{ "key": "a", "path": "deep/a" }] } },
                { "downwardAPI": { "items": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
            ] } },
        ],
    })
}

/// Found in a list, because the services are older than the node's agent; and nothing starts before that list.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_told_where_services_are() -> Result<()> {
    let mut instance = Instance::start().await?;
    let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
    for (namespace, name, address) in [
        ("default", "my-app", json!(null)),
        ("default", "headless", json!("None")),
        ("kube-public", "other", json!(null)),
    ] {
        let ports = json!([{ "name": "web", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
        let spec = json!({ "clusterIP": address, "ports": ports });
        let metadata = json!({ "name": name, "namespace": namespace });
        kubectl.apply(&json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec })).await?;
    }
    instance.kill_9().await?;
    instance.up().await?;
    let address = async |namespace: &str, name: &str| {
        kubectl.run(&["get", "service", "-n", namespace, name, "-o", "jsonpath={.spec.clusterIP}"]).await
    };
    let (api, mine) = (address("default", "kubernetes").await?, address("default", "my-app").await?);

    let env = json!([
        { "name": "URL", "value": "http://$(MY_APP_SERVICE_HOST):$(MY_APP_SERVICE_PORT_WEB)" },
        { "name": "MY_APP_SERVICE_PORT", "value": "own, not $(MY_APP_SERVICE_PORT)" },
    ]);
    let app = json!({ "name": "app", "image": "busybox", "env": env,
        "command": ["sh", "-c", "echo at $(KUBERNETES_SERVICE_HOST); env; sleep 1000"] });
    let seen = async |name: &str, links: bool| -> Result<Vec<String>> {
        let mut watch = PodWatch::on(&client, name).await?;
        kubectl.apply(&pod(name, json!({ "enableServiceLinks": links, "containers": [app] }))).await?;
        watch.ready().await?;
        let said = async {
            loop {
                let log = kubectl.run(&["logs", name]).await?;
                // The shell tells of itself last.
                if log.lines().any(|line| line.starts_with("PWD=")) {
                    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
                    lines.retain(|line| ["_SERVICE_", "_PORT", "URL=", "at "].iter().any(|part| line.contains(part)));
                    lines.sort();
                    return anyhow::Ok(lines);
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, said).await.context("what the container says")?
    };
    let of_api = [
        format!("KUBERNETES_PORT=tcp://{api}:443"),
        format!("KUBERNETES_PORT_443_TCP=tcp://{api}:443"),
        format!("KUBERNETES_PORT_443_TCP_ADDR={api}"),
        "KUBERNETES_PORT_443_TCP_PORT=443".to_owned(),
        "KUBERNETES_PORT_443_TCP_PROTO=tcp".to_owned(),
        format!("KUBERNETES_SERVICE_HOST={api}"),
        "KUBERNETES_SERVICE_PORT=443".to_owned(),
        "KUBERNETES_SERVICE_PORT_HTTPS=443".to_owned(),
    ];
    let of_app = [
        format!("MY_APP_PORT=tcp://{mine}:80"),
        format!("MY_APP_PORT_53_UDP=udp://{mine}:53"),
        format!("MY_APP_PORT_53_UDP_ADDR={mine}"),
        "MY_APP_PORT_53_UDP_PORT=53".to_owned(),
        "MY_APP_PORT_53_UDP_PROTO=udp".to_owned(),
        format!("MY_APP_PORT_80_TCP=tcp://{mine}:80"),
        format!("MY_APP_PORT_80_TCP_ADDR={mine}"),
        "MY_APP_PORT_80_TCP_PORT=80".to_owned(),
        "MY_APP_PORT_80_TCP_PROTO=tcp".to_owned(),
        format!("MY_APP_SERVICE_HOST={mine}"),
        "MY_APP_SERVICE_PORT=own, not $(MY_APP_SERVICE_PORT)".to_owned(),
        "MY_APP_SERVICE_PORT_DNS=53".to_owned(),
        "MY_APP_SERVICE_PORT_WEB=80".to_owned(),
    ];
    let sorted = |lines: Vec<String>| {
        let mut lines: Vec<_> = lines.into_iter().chain([format!("at {api}")]).collect();
        lines.sort();
        lines
    };
    let all = of_api.iter().chain(&of_app).cloned().chain([format!("URL=http://{mine}:80")]).collect();
    assert_eq!(seen("linked", true).await?, sorted(all));
    let (own, url) = (of_app[10].clone(), "URL=http://$(MY_APP_SERVICE_HOST):$(MY_APP_SERVICE_PORT_WEB)".to_owned());
    assert_eq!(seen("alone", false).await?, sorted(of_api.into_iter().chain([own, url]).collect()));
    instance.down().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn node_offers_as_many_pods_as_max_pods_says() -> Result<()> {
    let mut instance = Instance::start_with(&["--max-pods", "500"]).await?;
    let kubectl = Kubectl::newest(&instance)?;
    let told = "jsonpath={.items[0].status.capacity.pods} {.items[0].status.allocatable.pods}";
    let offered = kubectl.run(&["get", "nodes", "-o", told]).await?;
    ensure!(offered == "500 500", "{offered}");
    instance.down().await?;
    Ok(())
}
