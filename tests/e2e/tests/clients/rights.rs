//! Rights that do not grow: what somebody who may only patch cluster roles tries with stock kubectl, and what comes of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Result, ensure};
use e2e::{Instance, Kubectl};

const LABEL: &str = "rbac.authorization.k8s.io/aggregate-to-edit=true";

/// Whether `user` may, as `kubectl auth can-i` says.
async fn can_i(kubectl: &Kubectl, user: &str, words: &[&str]) -> Result<bool> {
    let user = format!("--as={user}");
    let output = kubectl.command(&[&["auth", "can-i"], words, &[&user]].concat()).output().await?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(matches!(said.trim(), "yes" | "no"), "{said} {}", String::from_utf8_lossy(&output.stderr));
    Ok(said.trim() == "yes")
}

/// [SE-67] The label would make everybody who may edit an administrator.
#[tokio::test(flavor = "multi_thread")]
async fn label_on_cluster_admin_by_a_patcher_of_roles_is_forbidden_and_an_editor_stays_one() -> Result<()> {
    let instance = Instance::start().await?;
    let newest = Kubectl::newest(&instance)?;
    for words in [
        &["create", "clusterrole", "labeller", "--verb=get,list,patch", "--resource=clusterroles"][..],
        &["create", "clusterrolebinding", "labeller", "--clusterrole=labeller", "--user=lena"],
        &["create", "rolebinding", "editor", "--clusterrole=edit", "--user=ed"],
    ] {
        newest.run(words).await?;
    }
    for kubectl in Kubectl::all(&instance)? {
        let name = kubectl.name();
        for role in ["cluster-admin", "admin", "system:kube-controller-manager"] {
            let output = kubectl.command(&["label", "clusterrole", role, LABEL, "--as=lena"]).output().await?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success(), "{name} labelled {role}");
            ensure!(said.starts_with("Error from server (Forbidden): "), "{name}, {role}: {said}");
            let words = "user \"lena\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions \
                         not currently held:";
            ensure!(said.contains(words), "{name}, {role}: {said}");
        }
        ensure!(can_i(&kubectl, "ed", &["delete", "pods"]).await?, "{name}: an editor stays one");
        for more in [&["create", "clusterroles"][..], &["get", "nodes"], &["*", "*", "--all-namespaces"]] {
            ensure!(!can_i(&kubectl, "ed", more).await?, "{name}: an editor may {more:?}");
        }
        // A role of which lena has everything is hers to label.
        let said = kubectl.run(&["label", "clusterrole", "labeller", "seen=yes", "--overwrite", "--as=lena"]).await?;
        ensure!(said.starts_with("clusterrole.rbac.authorization.k8s.io/labeller "), "{name}: {said}");
    }
    let labels = newest.run(&["get", "clusterrole", "cluster-admin", "--output=jsonpath={.metadata.labels}"]).await?;
    ensure!(!labels.contains("aggregate-to"), "{labels}");
    Ok(())
}
