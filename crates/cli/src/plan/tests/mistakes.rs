//! Manifests that are wrong: everything is told at once, with its place, to people and to programs.

use super::*;

#[test]
fn every_mistake_is_told_at_once_with_its_line_and_field() {
    let manifest = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: three
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      restartPolicy: Never
      containers:
      - name: web
        imagge: nginx
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: \"30\"
  containers: [{name: a, image: x}]
---
apiVersion: v1
kind: Pod
metadata: {name: q}
spec:
  containers:
  - name: a
    image: x
    lifecycle:
      preStop:
        sleep: {seconds: 90}
  - name: b
---
kind: Pod
---
kind: Pod
kind: Pod
";
    assert_eq!(
        planned(&["-f", "-"], manifest).unwrap_err(),
        "\
9 mistakes in the manifests
  standard input:6: spec.replicas: is of type string, must be int32
  standard input:11: spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"
  standard input:13: spec.template.spec.containers[0].image: Required value
  standard input:14: spec.template.spec.containers[0].imagge: no such field; did you mean image?
  standard input:20: spec.terminationGracePeriodSeconds: is of type string, must be int64: write whole seconds, such as \
         30
  standard input:32: spec.containers[0].lifecycle.preStop.sleep: Invalid value: 90: must be non-negative and less than \
         terminationGracePeriodSeconds (30)
  standard input:33: spec.containers[1].image: Required value
  standard input:35: apiVersion: required, so that we know what this is
  standard input:38: duplicate mapping key: kind"
    );
}

#[test]
fn a_value_that_cannot_be_read_hides_no_other_mistake() {
    let manifest = "\
apiVersion: v1
kind: Pod
metadata:
  name: Big
  labels: {app.kubernetes.io/name: 5, ok: fine}
spec:
  terminationGracePeriodSeconds: soon
  hostNetwork: maybe
  containers:
  - name: a
    image: x
    resources: {limits: {cpu: lots, memory: 1Gi}}
    ports: [{containerPort: http}]
  - name: a
    image: x
    lifecycle: {preStop: {sleep: {seconds: 5}, exec: {command: [a]}}}
";
    let error = planned(&["-f", "-"], manifest).unwrap_err();
    for line in [
        "standard input:5: metadata.labels.app.kubernetes.io/name: is of type number, must be string",
        "standard input:7: spec.terminationGracePeriodSeconds: is of type string, must be int64",
        "standard input:8: spec.hostNetwork: is of type string, must be bool",
        "standard input:12: spec.containers[0].resources.limits.cpu: is no quantity, such as 250m, 0.5 or 512Mi",
        "standard input:13: spec.containers[0].ports[0].containerPort: is of type string, must be int32",
        "standard input:14: spec.containers[1].name: Duplicate value: \"a\"",
        "standard input:4: metadata.name: Invalid value: \"Big\"",
        "standard input:16: spec.containers[1].lifecycle.preStop",
    ] {
        assert!(error.lines().any(|told| told.trim().starts_with(line)), "{line:?} in\n{error}");
    }
    // What could not be read is not called missing as well.
    assert!(!error.contains("containerPort: Required"), "{error}");
}

#[test]
fn a_program_is_told_of_mistakes_as_well() {
    let report = |arguments: &[&str], input: &str| {
        let cli = Cli::try_parse_from(["adieu", "plan", "-o", "json"].iter().chain(arguments)).unwrap();
        let Command::Plan(args) = cli.command else { panic!("`plan` is not `plan`") };
        let mut out = Vec::new();
        run(&args, &mut input.as_bytes(), &mut out, Paint { colours: false }).expect_err("it is wrong");
        serde_json::from_slice::<Value>(&out).unwrap()
    };
    let wrong = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, imagge: x}]}\n";
    assert_eq!(
        report(&["-f", "-", "-f", "/nowhere.yaml"], wrong),
        json!({ "pods": [], "skipped": [], "notes": [], "mistakes": [
            { "file": "/nowhere.yaml", "message": "cannot be read: No such file or directory (os error 2)" },
            { "file": "standard input", "line": 4, "field": "spec.containers[0].imagge", "message": "no such field; did you mean image?" },
            { "file": "standard input", "line": 4, "field": "spec.containers[0].image", "message": "Required value" },
        ] })
    );
    assert!(report(&["-f", "-"], "")["mistakes"][0]["message"].as_str().unwrap().starts_with("no pods to plan"));
    let good = pod(&json!({}), &json!({}));
    assert_eq!(report_of(&[], &good)["mistakes"], json!([]));
}

#[test]
fn a_folder_is_read_in_the_order_of_its_names() {
    let folder = std::env::temp_dir().join(format!("adieu-plan-{}", std::process::id()));
    fs::create_dir_all(folder.join("deeper")).unwrap();
    let named = |name: &str| pod(&json!({}), &json!({})).replace("\"p\"", &format!("\"{name}\""));
    for (file, text) in
        [("b.json", named("b")), ("a.yaml", named("a")), ("c.yml", named("c")), ("notes.txt", "no".into())]
    {
        fs::write(folder.join(file), text).unwrap();
    }
    fs::write(folder.join("deeper/d.yaml"), named("d")).unwrap();
    let path = folder.to_str().unwrap();
    let (text, _) = planned(&["-f", path, "-o", "json"], "").unwrap();
    let empty = planned(&["-f", &format!("{path}/deeper/..//deeper/none")], "").unwrap_err();
    fs::remove_file(folder.join("deeper/d.yaml")).unwrap();
    let none = planned(&["-f", &format!("{path}/deeper")], "").unwrap_err();
    fs::remove_dir_all(&folder).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> = report["pods"].as_array().unwrap().iter().map(|pod| pod["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(empty.contains("cannot be read"), "{empty}");
    assert!(none.contains("no manifest in this folder"), "{none}");
}

#[test]
fn yaml_syntax_error_is_reported_with_its_line() {
    let error = planned(&["-f", "-"], "kind: Pod\nspec:\n  a: 1\n  a: 2\n").unwrap_err();
    assert_eq!(error, "1 mistake in the manifests\n  standard input:4: duplicate mapping key: a");
    let error = planned(&["-f", "-"], "kind: [Pod\nspec: 1\n").unwrap_err();
    assert!(error.starts_with("1 mistake in the manifests\n  standard input:2: "), "{error}");
}

#[test]
fn plan_without_readable_pods_says_why() {
    assert!(planned(&["-f", "/nowhere.yaml"], "").unwrap_err().contains("/nowhere.yaml: cannot be read: No such file"));
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n";
    assert_eq!(
        planned(&["-f", "-"], config).unwrap_err(),
        "no pods to plan: the manifests hold no Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, \
         Job, CronJob or List"
    );
    let unknown = planned(&["-f", "-", "--app", "web=ignores-term"], &pod(&json!({}), &json!({}))).unwrap_err();
    assert_eq!(unknown, "no container is called \"web\"; there are: app");
    assert!(planned(&["-f", "-", "--app", "sings"], "").unwrap_err().contains("is not one of: exits-after=3s"));
}

#[test]
fn a_kind_that_does_not_exist_is_a_mistake_and_a_strangers_kind_is_named() {
    let of = |version: &str, kind: &str| format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: w}}\n");
    for (version, kind, said) in [
        (
            "apps/v1beta1",
            "Deployment",
            "1: apiVersion: there is no Deployment in \"apps/v1beta1\"; did you mean apps/v1?",
        ),
        ("v1", "Deployment", "1: apiVersion: there is no Deployment in \"v1\"; did you mean apps/v1?"),
        ("v1", "pod", "2: kind: there is no kind \"pod\"; did you mean Pod?"),
        ("apps/v1", "Deploymnt", "2: kind: there is no kind \"Deploymnt\"; did you mean Deployment?"),
        ("apps/v1", "Deploy", "2: kind: there is no kind \"Deploy\" in \"apps/v1\""),
        ("app/v1", "Deployment", "1: apiVersion: there is no Deployment in \"app/v1\"; did you mean apps/v1?"),
        ("app/v1", "Something", "1: apiVersion: there is no group \"app\""),
        ("networking.k8s.io/v1", "Ingres", "2: kind: there is no kind \"Ingres\"; did you mean Ingress?"),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRol",
            "2: kind: there is no kind \"ClusterRol\"; did you mean ClusterRole?",
        ),
        ("policy/v1", "PodDisruptionBudgets", "2: kind: there is no kind \"PodDisruptionBudgets\"; did you mean Pod"),
    ] {
        let error = planned(&["-f", "-"], &of(version, kind)).unwrap_err();
        assert!(error.contains(&format!("standard input:{said}")), "{error}");
    }
    let rollout = pod(&json!({}), &json!({})) + "\n---\n" + &of("argoproj.io/v1alpha1", "Rollout");
    let skipped = report_of(&[], &rollout)["skipped"][0].as_str().unwrap().to_owned();
    assert!(skipped.contains("is of a kind that is not known here"), "{skipped}");
    // Somebody else's kinds may be called almost like ours.
    for (version, kind) in
        [("example.com/v1", "Ingres"), ("snapshot.storage.k8s.io/v1", "VolumeSnapshot"), ("v1", "Binding")]
    {
        let manifest = pod(&json!({}), &json!({})) + "\n---\n" + &of(version, kind);
        assert_eq!(report_of(&[], &manifest)["skipped"].as_array().unwrap().len(), 1, "{version} {kind}");
    }
}

#[test]
fn mistakes_say_the_way_out() {
    let error = |arguments: &[&str], input: &str| planned(&[&["-f", "-"], arguments].concat(), input).unwrap_err();
    let good = pod(&json!({}), &json!({}));
    for (container, said) in [
        (json!({ "image": true }), "quote it"),
        (json!({ "command": "sleep 100" }), "write a list"),
        (json!({ "lifecycle": { "prestop": {} } }), "did you mean preStop?"),
        (
            json!({ "terminationGracePeriodSeconds": 5 }),
            "no such field here; terminationGracePeriodSeconds belongs to the spec of the pod",
        ),
    ] {
        let error = error(&[], &pod(&json!({}), &container));
        assert!(error.contains(said), "{error}");
    }
    let grace = error(&[], &pod(&json!({ "terminationGracePeriod": 5 }), &json!({})));
    assert!(grace.contains("did you mean terminationGracePeriodSeconds?"), "{grace}");
    assert!(error(&[], "kind: {{ .Release.Name }}\n").contains("helm template"));
    for (arguments, said) in [
        (&["--grace", "1.5"][..], "whole seconds"),
        (&["--app", "ignores-term,exits-after=3s"], "two things"),
        (&["--hook", "app=takes=2s"], "has no preStop hook"),
        (&["--accept", "all"], "no warning is called"),
        (&["app.yaml"], "files are given with -f"),
    ] {
        let error = error(arguments, &good);
        assert!(error.contains(said), "{error}");
    }
    assert!(planned(&["-f", "https://x.y/z.yaml"], "").unwrap_err().contains("curl -s"));
    assert!(planned(&["-f", "-", "--grace", "30s", "--delete-at", "1h30m"], &good).is_ok());
}

#[test]
fn a_pod_can_be_deleted_while_it_is_still_being_initialised() {
    let init = json!({ "initContainers": [{ "name": "wait", "image": "x", "command": ["sleep", "20"] }] });
    let report = report_of(
        &["--delete-at", "2s"],
        &pod(&init, &json!({ "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } } })),
    );
    let timeline = report["pods"][0]["timeline"].as_array().unwrap();
    let started: Vec<&str> = timeline
        .iter()
        .filter(|fact| fact["what"] == "started")
        .map(|fact| fact["container"].as_str().unwrap())
        .collect();
    assert_eq!(started, ["wait"]);
    assert!(!timeline.iter().any(|fact| fact["what"] == "hookStarted"));
}

/// What the command line alone cannot know to be wrong is still a mistake of the command line.
#[test]
fn options_for_what_is_not_there_are_misuse() {
    let good = pod(&json!({}), &json!({}));
    let error = |arguments: &[&str], input: &str| {
        let cli = Cli::try_parse_from(["adieu", "plan"].iter().chain(arguments)).unwrap();
        let Command::Plan(args) = cli.command else { panic!("`plan` is not `plan`") };
        run(&args, &mut input.as_bytes(), &mut Vec::new(), Paint { colours: false }).expect_err("it is wrong")
    };
    for arguments in [&["-f", "-", "--app", "wbe=hangs"][..], &["-f", "-", "--hook", "app=fails"], &["app.yaml"]] {
        assert!(error(arguments, &good).is::<super::super::Misuse>(), "{arguments:?}");
    }
    assert!(!error(&["-f", "-"], "kind: Pod\n").is::<super::super::Misuse>());
}

#[test]
fn accepted_warnings_are_given_as_people_give_lists() {
    let manifest = pod(&json!({ "terminationGracePeriodSeconds": 3600 }), &json!({ "command": ["sleep", "1d"] }));
    assert_eq!(warnings(&report_of(&[], &manifest)), ["grace-long", "no-handler"]);
    for accepted in [&["--accept", "no-handler,grace-long"][..], &["--accept", "no-handler", "--accept", "grace-long"]]
    {
        assert_eq!(warnings(&report_of(accepted, &manifest)), [""; 0]);
    }
    assert!(planned(&["-f", "-", "--accept", "killed,sings"], &manifest).unwrap_err().contains("\"sings\""));
}

/// A StatefulSet adds the volumes of its claims to its pods.
#[test]
fn volumes_of_claim_templates_are_there() {
    let manifest = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: db, image: db, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    assert_eq!(report_of(&[], manifest)["pods"][0]["kind"], "StatefulSet");
    let error = planned(&["-f", "-"], &manifest.replace("{name: data}", "{name: date}")).unwrap_err();
    assert!(error.contains("volumeMounts[0].name: Not found: \"data\""), "{error}");
}
