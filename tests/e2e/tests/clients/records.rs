//! What an instance keeps on disk and writes down: Secrets that are encrypted, keys that change or are missing, an audit policy.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{Instance, Kubectl};

const PASSWORD: &str = "correct horse battery staple";
/// As it is stored.
const PASSWORD_BASE64: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";
const IDENTITY: &str = "  - identity: {}\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// A provider whose key is made of one letter.
fn aesgcm(name: &str, letter: &str) -> String {
    let secret = match letter {
        "A" => "QUFB".repeat(10) + "QUE=",
        _ => "QkJC".repeat(10) + "QkI=",
    };
    format!("  - aesgcm: {{ keys: [{{ name: {name}, secret: {secret} }}] }}\n")
}

fn write_config(path: &Path, providers: &[String]) -> Result<()> {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
    Ok(std::fs::write(path, format!("{head}- resources: [secrets]\n  providers:\n{}", providers.concat()))?)
}

/// Whether a file of the folder holds the text.
fn holds(folder: &Path, text: &str) -> Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        // One that is being replaced may be gone by now.
        let bytes = std::fs::read(entry?.path()).unwrap_or_default();
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn until_it_holds(folder: &Path, text: &str, holds_it: bool) -> Result<()> {
    let waiting = async {
        while holds(folder, text)? != holds_it {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("{text}: not {holds_it} in time"))?
}

/// With stock kubectl: from plain to one key, to another, without it, and back.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_encrypted_on_disk_and_come_back_with_their_key() -> Result<()> {
    let files = tempfile::tempdir()?;
    let (config, policy) = (files.path().join("encryption.yaml"), files.path().join("policy.yaml"));
    let (audit, backup) = (files.path().join("audit.log"), files.path().join("backup"));
    write_config(&config, &[IDENTITY.to_owned()])?;
    let rule = "- { level: Request, verbs: [create], resources: [{ group: '', resources: [configmaps] }] }";
    std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rule}\n"))?;
    let path = |path: &Path| path.display().to_string();
    let (by, to, rules) = (path(&config), path(&audit), path(&policy));
    let options = ["--encryption-config", &by, "--audit-log", &to, "--audit-policy-file", &rules];
    let mut instance = Instance::start_with(&options).await?;
    let store = instance.dir().join("store");
    let kubectl = Kubectl::newest(&instance)?;
    kubectl.run(&["create", "secret", "generic", "s", &format!("--from-literal=password={PASSWORD}")]).await?;
    kubectl.run(&["create", "configmap", "c", "--from-literal=key=written-down"]).await?;
    ensure!(holds(&store, PASSWORD_BASE64)?, "it is plain");

    instance.stop().await?;
    write_config(&config, &[aesgcm("one", "A"), IDENTITY.to_owned()])?;
    instance.up().await?;
    until_it_holds(&store, PASSWORD_BASE64, false).await?;
    let read = ["get", "secret", "s", "-o", "jsonpath={.data.password}"];
    let kubectl = Kubectl::newest(&instance)?;
    ensure!(kubectl.run(&read).await? == PASSWORD_BASE64);
    let made = instance.adieu(&["store", "backup"]).arg(&backup).output().await?;
    ensure!(made.status.success() && !holds(files.path(), PASSWORD_BASE64)?, "{made:?}");

    instance.stop().await?;
    write_config(&config, &[aesgcm("two", "B"), aesgcm("one", "A")])?;
    instance.up().await?;
    until_it_holds(&store, "k8s:enc:aesgcm:v1:one:", false).await?;
    instance.stop().await?;
    write_config(&config, &[IDENTITY.to_owned()])?;
    let checked = instance.adieu(&["store", "check"]).output().await?;
    let said = String::from_utf8(checked.stdout)?;
    ensure!(said.contains("encrypted by aesgcm:v1:two: ") && !said.contains("v1:one"), "{said}");

    instance.up().await?;
    let kubectl = Kubectl::newest(&instance)?;
    let refused = kubectl.command(&read).output().await?;
    let said = String::from_utf8(refused.stderr)?;
    ensure!(!refused.status.success() && said.contains("key \"two\", which is not there"), "{said}");
    instance.stop().await?;
    write_config(&config, &[aesgcm("two", "B")])?;
    instance.up().await?;
    ensure!(Kubectl::newest(&instance)?.run(&read).await? == PASSWORD_BASE64, "nothing was lost");

    let written = std::fs::read_to_string(&audit)?;
    ensure!(written.lines().count() == 1 && written.contains("written-down"), "{written}");
    instance.stop().await?;
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- { level: All }\n")?;
    ensure!(instance.up().await.is_err(), "a policy with a mistake is not taken");
    let log = std::fs::read_to_string(instance.log())?;
    ensure!(log.contains("rules[0].level: must be None, Metadata, Request or RequestResponse"), "{log}");
    std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rule}\n"))?;
    instance.up().await
}
