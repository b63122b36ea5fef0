//! Where Services get their addresses: chosen once, kept with them, and not changed under them.

use serde_json::{Value, json};

use crate::server::{client, command, send, start, start_with};

const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn address(client: &kube::Client, name: &str) -> String {
    let (code, service) = send(client, "GET", &format!("{SERVICES}/{name}"), Value::Null).await;
    assert_eq!(code, 200, "{service}");
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn service_range_is_kept_with_the_services_and_not_changed_under_them() {
    let dir = tempfile::tempdir().unwrap();
    let asked = |range: &str| {
        let mut command = command(dir.path());
        command.args(["--service-cidr", range]);
        command
    };
    let refused = |range: &str| {
        let refused = asked(range).output().unwrap();
        assert!(!refused.status.success(), "{range}");
        String::from_utf8(refused.stderr).unwrap()
    };
    for wrong in ["10.99.0.0", "10.99.0.0/30", "10.99.0.1/24", "fd00::/64", "127.0.0.0/24"] {
        let said = refused(wrong);
        assert!(said.contains("--service-cidr: service range") && said.contains("write it like"), "{said}");
    }
    let server = start_with(&mut asked("10.99.0.0/24"));
    let admin = client(dir.path()).await;
    assert_eq!(address(&admin, "kubernetes").await, "10.99.0.1");
    let web = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let (code, made) = send(&admin, "POST", SERVICES, web).await;
    assert!(code == 201 && made["spec"]["clusterIP"].as_str().unwrap().starts_with("10.99.0."), "{made}");
    drop(server);

    let said = refused("10.98.0.0/24");
    assert!(said.contains("default/web has 10.99.0.") && said.contains("--service-cidr"), "{said}");

    let server = start(dir.path());
    let admin = client(dir.path()).await;
    assert_eq!(address(&admin, "kubernetes").await, "10.99.0.1", "the range is kept");
    let (code, _) = send(&admin, "DELETE", &format!("{SERVICES}/web"), Value::Null).await;
    assert_eq!(code, 200);
    drop(server);

    let _server = start_with(&mut asked("10.98.0.0/24"));
    let admin = client(dir.path()).await;
    assert_eq!(address(&admin, "kubernetes").await, "10.98.0.1", "the server's own moves with the range");
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let (_, shown) = send(&admin, "GET", ranges, Value::Null).await;
    assert_eq!(shown["spec"]["cidrs"], json!(["10.98.0.0/24"]));
}
