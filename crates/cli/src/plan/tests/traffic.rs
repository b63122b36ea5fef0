//! Pods behind Services: the barrier as the rules have it, and clusters without one.

use super::*;

const SERVICE: &str =
    "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n";

/// A Deployment behind that Service: the rest of its spec, of its template's annotations, and of its pods.
fn deployment(spec: &Value, annotations: &Value, pod: &Value) -> String {
    let mut template = json!({
        "metadata": { "labels": { "app": "web" }, "annotations": annotations },
        "spec": { "containers": [{ "name": "web", "image": "nginx", "readinessProbe": { "tcpSocket": { "port": 80 } } }] },
    });
    for (key, value) in pod.as_object().unwrap() {
        template["spec"][key] = value.clone();
    }
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "template": template },
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object.to_string() + SERVICE
}

/// What the timeline says about the barrier, and when the stop signal went out.
fn barrier(arguments: &[&str], manifest: &str) -> (Vec<String>, i64) {
    let steered: &[&str] = if arguments.contains(&"--traffic") { &[] } else { &["--traffic", "steered"] };
    let report = report_of(&[arguments, steered].concat(), manifest);
    let timeline = report["pods"][0]["timeline"].as_array().unwrap();
    let told = timeline.iter().filter_map(|fact| match fact["what"].as_str().unwrap() {
        "trafficCut" => Some(fact["how"].as_str().unwrap().to_owned()),
        quiet @ ("servesOn" | "standInReady") => Some(quiet.to_owned()),
        "barrierOpened" => Some(fact["reason"].as_str().unwrap().to_owned()),
        _ => None,
    });
    let signalled = timeline.iter().find(|fact| fact["what"] == "signalled").unwrap()["atMillis"].as_i64().unwrap();
    (told.collect(), signalled)
}

#[test]
fn a_pod_behind_a_service_is_asked_to_exit_once_its_traffic_goes_elsewhere() {
    let none = json!({});
    let (told, signalled) = barrier(&[], &deployment(&none, &none, &none));
    assert_eq!(told, ["divert", "LocalCut"]);
    assert!((1..100).contains(&signalled), "{signalled}");
    let text = text_of(&["--traffic", "steered", "--app", "exits-after=3s"], &deployment(&none, &none, &none));
    let order = [
        "the pod is deleted",
        "-> barrier: send its new connections to other pods",
        "barrier open",
        "-> SIGQUIT to web",
    ];
    let places: Vec<_> = order.iter().map(|line| text.find(line).expect(line)).collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn plan_says_whether_traffic_is_steered() {
    let none = json!({});
    let joined = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = joined(text_of(&[], &deployment(&none, &none, &none)));
    assert!(text.contains("Service web sends connections to it; 2 other pods can take them over"), "{text}");
    assert!(
        text.contains("shown as on most clusters: nobody steers them, so hooks and stop signals go out at once"),
        "{text}"
    );
    let alone = deployment(&json!({ "replicas": 1 }), &none, &none);
    let (told, signalled) = barrier(&["--traffic", "unsteered"], &alone);
    assert_eq!((told, signalled), (Vec::new(), 0));
    assert_eq!(report_of(&[], &alone)["pods"][0]["traffic"]["steered"], false);
    // Where the barrier is shown and takes time, the end without is told as well.
    let text = joined(text_of(&["--traffic", "steered"], &alone));
    assert!(text.contains("shown as on Adieu, with the drain barrier"), "{text}");
    assert!(text.contains("whoever still connects, and the pod is gone after 1s"), "{text}");
    let report = report_of(&["--traffic", "steered"], &alone);
    assert_eq!(report["pods"][0]["traffic"]["steered"], true);
    assert_eq!(report["pods"][0]["traffic"]["goneWithoutSteeringMillis"], 1_002);
}

#[test]
fn evidence_that_is_late_or_missing_opens_the_barrier_at_its_cap() {
    let none = json!({});
    let manifest = deployment(&none, &none, &none);
    let (told, signalled) = barrier(&["--traffic", "moves-after=2s"], &manifest);
    assert_eq!(told, ["divert", "LocalCut"]);
    assert!((2_000..2_100).contains(&signalled), "{signalled}");
    assert_eq!(barrier(&["--traffic", "stays"], &manifest), (vec!["divert".into(), "Deadline".into()], 5_000));
    let report = report_of(&["--traffic", "stays"], &manifest);
    assert_eq!(report["pods"][0]["verdict"]["word"], "hurried");
    assert_eq!(
        report["pods"][0]["containers"][0]["spans"][0],
        json!({ "on": "barrier", "fromMillis": 0, "toMillis": 5_000 })
    );
}

#[test]
fn the_last_endpoint_serves_on_until_its_replacement_is_ready() {
    let none = json!({});
    let alone = deployment(&json!({ "replicas": 1 }), &none, &none);
    let (told, signalled) = barrier(&["--traffic", "replacement-after=8s"], &alone);
    assert_eq!(told, ["servesOn", "standInReady", "divert", "LocalCut"]);
    assert!((8_000..8_100).contains(&signalled), "{signalled}");
    // A reserve of ten seconds is kept of the grace, whoever comes.
    let (told, signalled) = barrier(&["--traffic", "no-replacement"], &alone);
    assert_eq!((told, signalled), (vec!["servesOn".into(), "Deadline".into()], 20_000));
    // Whoever is replaced only when it is gone waits for nobody.
    let recreated = deployment(&json!({ "replicas": 1, "strategy": { "type": "Recreate" } }), &none, &none);
    assert_eq!(barrier(&[], &recreated), (vec!["LastEndpoint".into()], 0));
}

#[test]
fn drain_barrier_follows_its_annotation_and_the_kind_of_pod() {
    let none = json!({});
    let with = |name: &str, value: &str| deployment(&none, &json!({ format!("adieu.dev/{name}"): value }), &none);
    assert_eq!(barrier(&[], &with("drain-barrier", "off")), (vec!["Off".into()], 0));
    assert_eq!(barrier(&[], &with("drain-barrier", "acks")).0, ["withdraw", "AllAcked"]);
    assert_eq!(barrier(&[], &with("redirect", "off")).0, ["withdraw", "AllAcked"]);
    assert_eq!(barrier(&[], &with("drain-barrier", "quiet")).0, ["withdraw", "Quiet"]);
    assert_eq!(barrier(&[], &deployment(&none, &none, &json!({ "hostNetwork": true }))).0, ["withdraw", "AllAcked"]);
    assert_eq!(
        barrier(&["--grace", "2"], &with("drain-barrier", "auto")),
        (vec!["divert".into(), "ShortGrace".into()], 0)
    );
    // A connection to one member must not land at another.
    let stateful = deployment(&json!({ "serviceName": "web" }), &none, &none).replace("Deployment", "StatefulSet");
    assert_eq!(barrier(&[], &stateful).0, ["withdraw", "AllAcked"]);
    // Nobody connects to what was never Ready, or is gone at once.
    let slow = json!({ "containers": [{ "name": "web", "image": "nginx", "readinessProbe":
        { "tcpSocket": { "port": 80 }, "initialDelaySeconds": 60 } }] });
    assert_eq!(barrier(&["--delete-at", "1s"], &deployment(&none, &none, &slow)), (Vec::new(), 0));
    assert_eq!(barrier(&["--grace", "0"], &deployment(&none, &none, &none)).1, 0);
}

#[test]
fn open_connections_are_waited_for_within_the_budget() {
    let grace = json!({ "terminationGracePeriodSeconds": 1860 });
    let room = |budget: &str| {
        deployment(
            &json!({}),
            &json!({ "adieu.dev/drain-budget-seconds": budget,
        "adieu.dev/drain-signal": "SIGUSR1" }),
            &grace,
        )
    };
    let text = text_of(&["--traffic", "connections-end-after=10m"], &room("1800"));
    for line in [
        "-> wait for its open connections, 30m at most",
        "-> SIGUSR1 to web: its connections are waited for",
        "10m  nobody is connected any more",
        "-> SIGQUIT to web",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let report = report_of(&["--traffic", "connections-end-after=2h"], &room("1800"));
    assert_eq!(report["pods"][0]["verdict"]["word"], "hurried");
    // The signal that tells of the wait asks nobody to exit.
    assert_eq!(report["pods"][0]["containers"][0]["end"]["code"], 0);
    assert!(report["pods"][0]["containers"][0]["end"]["atMillis"].as_i64() > Some(1_800_000));
}

#[test]
fn a_sleep_that_the_barrier_makes_pointless_is_left_out_if_the_pod_says_so() {
    let sleep = json!({ "containers": [{ "name": "web", "image": "nginx", "readinessProbe": { "tcpSocket": { "port": 80 } },
        "lifecycle": { "preStop": { "sleep": { "seconds": 9 } } } }] });
    let plain = deployment(&json!({}), &json!({}), &sleep);
    assert!((9_000..9_100).contains(&barrier(&[], &plain).1));
    let elided = deployment(&json!({}), &json!({ "adieu.dev/elide-sleep": "true" }), &sleep);
    assert!((0..100).contains(&barrier(&[], &elided).1));
    let steered = ["--traffic", "steered"];
    let text = joined(&text_of(&steered, &elided));
    assert!(text.contains("the sleep of web is left out: its traffic has moved"), "{text}");
    assert!((9_000..9_100).contains(&barrier(&["--traffic", "unsteered"], &elided).1), "as long as nobody steers");
    let report = report_of(&steered, &plain);
    assert_eq!(warnings(&report), ["sleep-instead-of-barrier"]);
    let remedy = report["pods"][0]["warnings"][0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("adieu.dev/elide-sleep"), "{remedy}");
    assert_eq!(warnings(&report_of(&steered, &elided)), [""; 0]);
    // Today it is what keeps connections from being refused.
    assert_eq!(warnings(&report_of(&[], &plain)), [""; 0]);
    let without = deployment(&json!({}), &json!({}), &json!({}));
    assert_eq!(warnings(&report_of(&[], &without)), ["traffic-still-arrives"]);
    assert_eq!(warnings(&report_of(&["--accept", "traffic-still-arrives"], &without)), [""; 0]);
    assert_eq!(warnings(&report_of(&steered, &without)), [""; 0]);
}

#[test]
fn only_a_service_that_selects_the_pod_in_its_namespace_counts() {
    let manifest = deployment(&json!({}), &json!({}), &json!({}));
    for other in
        ["selector: {app: other}", "selector: {}", "selector: {app: web}, type: ExternalName, externalName: x.y"]
    {
        let other = manifest.replace("selector: {app: web}", other);
        assert_eq!(report_of(&[], &other)["pods"][0]["traffic"], Value::Null, "{other}");
    }
    let elsewhere = manifest.replace("{name: web}\nspec", "{name: web, namespace: other}\nspec");
    assert_eq!(report_of(&[], &elsewhere)["pods"][0]["traffic"], Value::Null);
    assert_eq!(report_of(&[], &manifest)["pods"][0]["traffic"]["others"], 2);
}

/// A Service that selects nothing is not passed over in silence: it is where a misspelt label shows.
#[test]
fn a_service_that_selects_nobody_is_mentioned() {
    let service = |metadata: &str, spec: &str| {
        format!(
            "\n---\napiVersion: v1\nkind: Service\nmetadata: {{{metadata}}}\nspec: {{{spec}, ports: [{{port: 80}}]}}\n"
        )
    };
    let notes = |service: &str| {
        let report = report_of(&[], &(pod(&json!({}), &json!({})) + service));
        let notes = report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned());
        notes.collect::<Vec<_>>().join(" ")
    };
    let lonely = service("name: s", "selector: {app: wbe}");
    assert_eq!(
        notes(&lonely),
        "Service s (standard input:3) selects no pod of these files: app=wbe; none of them is shown with its traffic"
    );
    assert!(notes(&service("name: s, namespace: shop", "selector: {app: p}")).contains("in namespace default"));
    assert_eq!(notes(&service("name: s", "selector: {app: p}")), "");
    // Nobody meant a pod of the file.
    assert_eq!(notes(&service("name: s", "type: ExternalName, externalName: x.y")), "");
    assert_eq!(notes(&service("name: s", "clusterIP: None")), "");
    let text = text_of(&[], &(pod(&json!({}), &json!({})) + &lonely));
    assert!(text.contains("\nnote: Service s (standard input:3) selects no pod"), "{text}");
}

/// Connections are for the container whose port a Service names.
#[test]
fn only_the_container_behind_the_service_is_warned_of() {
    let mut object: Value =
        serde_json::from_str(&pod(&json!({}), &json!({ "ports": [{ "containerPort": 8080 }] }))).unwrap();
    object["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "edge", "image": "x", "ports": [{ "containerPort": 10000, "name": "ingress" }] }));
    let replicas = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "p" } },
            "template": { "metadata": object["metadata"], "spec": object["spec"] } },
    });
    let mut replicas = replicas;
    replicas["spec"]["template"]["metadata"] = json!({ "labels": { "app": "p" } });
    let with = |target: &str| {
        let service = format!(
            "\n---\napiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{selector: {{app: p}}, ports: [{{port: 80, \
             targetPort: {target}}}]}}\n"
        );
        let report = report_of(&[], &(replicas.to_string() + &service));
        let found = report["pods"][0]["warnings"].as_array().unwrap().iter();
        let names: std::collections::BTreeSet<String> =
            found.map(|warning| warning["container"].as_str().unwrap().to_owned()).collect();
        names.into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!((with("ingress"), with("8080"), with("99")), ("edge".into(), "app".into(), "app edge".into()));
}
