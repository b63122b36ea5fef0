//! Hostile and odd manifests: an answer or a mistake, never a panic or a hang.

use super::*;

/// Planning it ends, one way or the other.
fn survives(input: &str, arguments: &[&str]) -> Result<String, String> {
    planned(&[&["-f", "-"], arguments].concat(), input).map(|(text, _)| text)
}

#[test]
fn ten_thousand_documents_are_not_too_many() {
    let one = |n: usize| match n % 100 {
        0 => format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}, labels: {{a: b}}}}\nspec: {{containers: [{{name: a, \
             image: x}}]}}\n"
        ),
        1 => "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {a: b}, ports: [{port: 1}]}\n"
            .to_owned(),
        _ => format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{n}}}\ndata: {{}}\n"),
    };
    let report = report_of(&[], &(0..10_000).map(one).collect::<String>());
    assert_eq!(report["pods"].as_array().unwrap().len(), 100);
    assert_eq!(report["pods"][99]["line"], 9_900 * 5 + 2);
    assert_eq!(report["pods"][99]["traffic"]["others"], 99);
    assert_eq!(report["skipped"].as_array().unwrap().len(), 9_800);
}

#[test]
fn graces_and_lengths_of_any_size_are_drawn() {
    for grace in ["0", "1", "-1", "-9223372036854775808", "9223372036854775807", "86400", "31536000"] {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{terminationGracePeriodSeconds: {grace}, containers: \
             [{{name: a, image: x, lifecycle: {{preStop: {{exec: {{command: [sh, -c, sleep 99999999999d]}}}}}}}}]}}\n"
        );
        for arguments in
            [&[][..], &["--app", "ignores-term"], &["--app", "exits-after=99999999999999h"], &["--hook", "hangs"]]
        {
            let text = survives(&manifest, arguments).unwrap();
            assert!(text.contains("the pod is gone") || text.contains("nothing of it is left"), "{grace}: {text}");
        }
    }
    let manifest = pod(&json!({}), &json!({}));
    for arguments in [&["--grace", "9223372036854775807"][..], &["--delete-at", "99999999999d"], &["--delete-at", "0"]]
    {
        survives(&manifest, arguments).unwrap();
    }
    assert!(survives(&manifest, &["--grace", "18446744073709551615"]).unwrap_err().contains("--grace"));
    assert!(survives(&manifest, &["--grace", "-1"]).is_err());
}

/// Every value of a manifest, replaced by every kind of nonsense.
#[test]
fn nonsense_in_any_field_is_a_mistake_or_a_plan() {
    let whole = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "w", "labels": { "a.b/c": "d" } },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
            "template": {
                "metadata": { "labels": { "a": "b" }, "annotations": { "adieu.dev/drain-budget-seconds": "5" } },
                "spec": {
                    "terminationGracePeriodSeconds": 30, "shareProcessNamespace": false,
                    "initContainers": [{ "name": "s", "image": "x", "restartPolicy": "Always" }],
                    "containers": [{
                        "name": "c", "image": "x", "command": ["sh", "-c", "a; b"],
                        "resources": { "limits": { "cpu": "1" } },
                        "ports": [{ "containerPort": 80, "name": "http" }],
                        "lifecycle": { "preStop": { "httpGet": { "port": "http", "path": "/" } } },
                        "readinessProbe": { "httpGet": { "port": 80 }, "initialDelaySeconds": 1 },
                    }],
                },
            },
        },
    });
    let mut pointers = Vec::new();
    fn walk(value: &Value, at: &str, pointers: &mut Vec<String>) {
        pointers.push(at.to_owned());
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                walk(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), pointers);
            }),
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, value)| walk(value, &format!("{at}/{i}"), pointers))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    walk(&whole, "", &mut pointers);
    let nonsense = [
        json!(null),
        json!(true),
        json!(-1),
        json!(9_223_372_036_854_775_807_i64),
        json!(1.5),
        json!(""),
        json!("\u{0}'\"`$("),
        json!([]),
        json!({}),
        json!([[null]]),
        json!({ "": { "x.y[0]": 1 } }),
    ];
    for pointer in &pointers {
        for nonsense in &nonsense {
            let mut broken = whole.clone();
            *broken.pointer_mut(pointer).unwrap() = nonsense.clone();
            if let Err(error) = survives(&broken.to_string(), &[]) {
                assert!(!error.is_empty() && !error.contains("Go struct"), "{pointer} {nonsense}: {error}");
            }
        }
    }
}

#[test]
fn texts_that_are_no_manifests_are_mistakes() {
    let deep = "[".repeat(100_000);
    let bomb = (1..9).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        let before = n - 1;
        text + &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{before}"); 9].join(", "))
    });
    for (text, said) in [
        ("hello\n", "this is a text, and should be an object"),
        ("- a\n- b\n", "this is a list, and should be an object"),
        ("7\n", "this is a value, and should be an object"),
        ("kind: 5\napiVersion: v1\n", "kind: is a value, must be a text"),
        ("kind: Pod\n", "apiVersion: required"),
        ("{\"kind\": \"Pod\", ", ""),
        ("\tkind: Pod\n", ""),
        ("? [a]\n: b\n", ""),
        ("kind: !!binary x\n", ""),
        ("a: *nobody\n", ""),
        (&deep, ""),
        (&bomb, "too large or too deep"),
        ("", "no pods to plan"),
        ("---\n---\n# only words\n", "no pods to plan"),
        ("apiVersion: v1\nkind: List\nitems: 5\n", "no pods to plan"),
        ("apiVersion: v1\nkind: List\nitems: [5, {}, {kind: Pod}]\n", "3 mistakes"),
    ] {
        let error = survives(text, &[]).unwrap_err();
        assert!(error.contains(said), "{:?}: {error}", &text[..text.len().min(40)]);
    }
    let mut out = Vec::new();
    let cli = Cli::try_parse_from(["adieu", "plan", "-f", "-"]).unwrap();
    let Command::Plan(args) = cli.command else { panic!("`plan` is not `plan`") };
    let error = run(&args, &mut &b"\xff\xfe\x00"[..], &mut out, Paint { colours: false }).unwrap_err();
    assert!(error.to_string().contains("standard input: cannot be read: it is not UTF-8 text"), "{error}");
}

/// Random bytes of shell never panic the reader, and what it reads it reads in time.
#[test]
fn random_scripts_are_parsed_or_left_alone() {
    const PIECES: [&str; 34] = [
        "a",
        " ",
        ";",
        "&",
        "|",
        "(",
        ")",
        "{",
        "}",
        "\n",
        "'",
        "\"",
        "\\",
        "$",
        "$(",
        "${",
        "`",
        "#",
        "<",
        ">",
        "<<E",
        "if ",
        "then ",
        "fi",
        "while ",
        "do ",
        "done",
        "for x in ",
        "case x in ",
        "esac",
        "trap ",
        "exec ",
        "sleep 9",
        "é",
    ];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below).unwrap()).unwrap()
    };
    for _ in 0..20_000 {
        let script: String = (0..random(24)).map(|_| PIECES[random(PIECES.len())]).collect();
        let command = ["sh".to_owned(), "-c".to_owned(), script];
        let around = super::super::command::Circumstances { first: true, fed: false, signal: "TERM", image: "x" };
        super::super::command::hears(&command, &[], around);
        super::super::pause::of_command(&command);
    }
}

#[test]
fn pod_read_from_a_cluster_can_be_planned() {
    let mut object: Value = serde_json::from_str(&pod(&json!({ "nodeName": "n" }), &json!({}))).unwrap();
    object["metadata"]["resourceVersion"] = json!("12");
    object["metadata"]["uid"] = json!("3d5c");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["managedFields"] = json!([{ "manager": "kubectl", "operation": "Update" }]);
    object["status"] = json!({ "phase": "Running", "unheard": true });
    let list = json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" }, "items": [object] });
    assert_eq!(report_of(&[], &list.to_string())["pods"][0]["verdict"]["word"], "clean");
}
