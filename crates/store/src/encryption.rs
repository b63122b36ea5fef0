//! Encryption at rest: which values are written encrypted and by which key, and how they are read back.
//!
//! ```text
//!  k8s:enc:aesgcm:v1:NAME:  nonce, 12 bytes  ciphertext  tag, 16 bytes        in the place of the value
//! ```
//!
//! Only the log's files have that; what is in memory is plain. The object's key is authenticated along with its value, so no
//! value can be moved under another key. The configuration is upstream's `EncryptionConfiguration`, and so is the prefix. A value that no
//! key opens is kept as it is, and only its key is known of the object (`soundness`).
//!
//! Only objects whose absence nobody acts on can be encrypted. What ends when its object seems to be gone, a pod or what somebody owns,
//! would end when a key is missing.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::Value;

use crate::Key;

const PREFIX: &[u8] = b"k8s:enc:";
const AESGCM: &str = "aesgcm:v1:";
/// The collections that can be encrypted.
const COLLECTIONS: [&str; 2] = ["secrets", "configmaps"];
/// How many keys there may be: each is tried for every value of its name.
const KEYS_MAX: usize = 64;
/// The longest name of a key.
const NAME_MAX: usize = 253;

/// How values are written and read. The default writes all of them plain and reads none that is encrypted.
#[derive(Clone, Default)]
pub struct Encryption(Arc<Vec<Rule>>);

/// What is done with some collections.
struct Rule {
    collections: Vec<String>,
    /// All of them open, in the order in which they are written.
    keys: Vec<NamedKey>,
    /// Whether the first of them encrypts; else values are written plain.
    encrypts: bool,
}

struct NamedKey {
    name: String,
    key: LessSafeKey,
}

/// What is wrong with a configuration, and where in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct EncryptionConfigError {
    /// As in `resources[0].providers[1]`.
    pub path: String,
    /// What, and what to do.
    pub reason: String,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.iter().flat_map(|rule| &rule.keys).map(|key| &key.name);
        f.debug_tuple("Encryption").field(&keys.collect::<Vec<_>>()).finish()
    }
}

impl Encryption {
    /// Reads an `EncryptionConfiguration`.
    pub fn from_config(config: &Value) -> Result<Self, EncryptionConfigError> {
        let kind = (config["apiVersion"].as_str(), config["kind"].as_str());
        if kind != (Some("apiserver.config.k8s.io/v1"), Some("EncryptionConfiguration")) {
            return wrong("kind", "must be EncryptionConfiguration of apiVersion apiserver.config.k8s.io/v1");
        }
        known_fields("", config, &["apiVersion", "kind", "resources"])?;
        let rules = list("resources", &config["resources"])?;
        let rules: Vec<_> = rules.map(|(path, rule)| Rule::read(&path, rule)).collect::<Result<_, _>>()?;
        let mut seen = std::collections::BTreeSet::new();
        for (at, rule) in rules.iter().enumerate() {
            if let Some(twice) = rule.collections.iter().find(|of| !seen.insert((*of).clone())) {
                return wrong(format!("resources[{at}].resources"), format!("{twice} is named twice; name it once"));
            }
        }
        if rules.iter().map(|rule| rule.keys.len()).sum::<usize>() > KEYS_MAX {
            return wrong(
                "resources",
                format!("there are more than {KEYS_MAX} keys; remove those of which no value is left"),
            );
        }
        Ok(Self(Arc::new(rules)))
    }

    /// Whether it has no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|rule| rule.keys.is_empty())
    }

    /// The key that values of a collection are written with.
    fn writes_with(&self, collection: &str) -> Option<&NamedKey> {
        let rule = self.0.iter().find(|rule| rule.collections.iter().any(|of| of == collection))?;
        rule.keys.first().filter(|_| rule.encrypts)
    }

    /// Appends a value as it is written. One that is encrypted already is one that could not be read; it stays what it is.
    pub(crate) fn seal(&self, key: &Key, value: &[u8], out: &mut Vec<u8>) {
        let Some(with) = self.writes_with(&key.collection).filter(|_| !is_sealed(value)) else {
            return out.extend_from_slice(value);
        };
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).expect("the kernel has random numbers");
        for part in [PREFIX, AESGCM.as_bytes(), with.name.as_bytes(), b":", &nonce] {
            out.extend_from_slice(part);
        }
        let start = out.len();
        out.extend_from_slice(value);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = with.key.seal_in_place_separate_tag(nonce, authenticated(key), &mut out[start..]);
        out.extend_from_slice(tag.expect("a value is shorter than 64 GiB").as_ref());
    }

    /// The value that was written so; `None` if it was written plain. An error says why it cannot be read.
    pub(crate) fn open(&self, key: &Key, stored: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if !is_sealed(stored) {
            return Ok(None);
        }
        let Some((name, sealed)) = aesgcm(stored) else {
            let provider = label(stored).unwrap_or_default();
            return Err(format!("it is encrypted by {provider}, which this program does not have"));
        };
        let mut is_known = false;
        for with in self.0.iter().flat_map(|rule| &rule.keys).filter(|key| key.name == name) {
            is_known = true;
            let Some((nonce, sealed)) = sealed.split_first_chunk::<NONCE_LEN>() else { break };
            let mut value = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            if let Ok(plain) = with.key.open_in_place(nonce, authenticated(key), &mut value) {
                let length = plain.len();
                value.truncate(length);
                return Ok(Some(value));
            }
        }
        Err(match is_known {
            true => format!(
                "it is encrypted by key {name:?}, and the key of that name is another one, or the value was changed or moved on disk; give \
                 that key back with --encryption-config"
            ),
            false => {
                format!("it is encrypted by key {name:?}, which is not there; give it back with --encryption-config")
            }
        })
    }

    /// Whether a value of this collection would be written as it is stored: encrypted by the same key, or plain.
    pub(crate) fn is_current(&self, collection: &str, stored: &[u8]) -> bool {
        match (self.writes_with(collection), aesgcm(stored)) {
            (Some(with), Some((name, _))) => with.name == name,
            (None, _) => !is_sealed(stored),
            (Some(_), None) => false,
        }
    }

    /// The names of the keys that write.
    pub(crate) fn writers(&self) -> Vec<&str> {
        let writers = self.0.iter().filter(|rule| rule.encrypts).filter_map(|rule| rule.keys.first());
        writers.map(|key| key.name.as_str()).collect()
    }
}

/// Whether a stored value is encrypted, by whomever.
pub(crate) fn is_sealed(stored: &[u8]) -> bool {
    stored.starts_with(PREFIX)
}

/// By what a stored value is encrypted, as in `aesgcm:v1:NAME`.
pub(crate) fn label(stored: &[u8]) -> Option<String> {
    let rest = stored.strip_prefix(PREFIX)?;
    let parts: Vec<_> = rest[..rest.len().min(NAME_MAX + 64)].split(|byte| *byte == b':').take(3).collect();
    Some(parts.into_iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(":"))
}

/// The name of the key and what it has sealed.
fn aesgcm(stored: &[u8]) -> Option<(&str, &[u8])> {
    let rest = stored.strip_prefix(PREFIX)?.strip_prefix(AESGCM.as_bytes())?;
    let at = rest.iter().take(NAME_MAX + 1).position(|byte| *byte == b':')?;
    Some((std::str::from_utf8(&rest[..at]).ok()?, &rest[at + 1..]))
}

fn authenticated(key: &Key) -> Aad<Vec<u8>> {
    Aad::from(format!("{}/{}/{}", key.collection, key.namespace, key.name).into_bytes())
}

impl Rule {
    fn read(path: &str, rule: &Value) -> Result<Self, EncryptionConfigError> {
        known_fields(path, rule, &["resources", "providers"])?;
        let mut collections = Vec::new();
        for (path, resource) in list(&format!("{path}.resources"), &rule["resources"])? {
            match resource.as_str().map(|name| name.strip_suffix('.').unwrap_or(name)) {
                Some(name) if COLLECTIONS.contains(&name) => collections.push(name.to_owned()),
                _ => {
                    let can = COLLECTIONS.join(" and ");
                    return wrong(path, format!("{resource} cannot be encrypted; {can} can, each by its name"));
                }
            }
        }
        let (mut keys, mut encrypts) = (Vec::new(), None);
        for (path, provider) in list(&format!("{path}.providers"), &rule["providers"])? {
            let one = provider.as_object().filter(|fields| fields.len() == 1);
            match one.and_then(|fields| fields.iter().next()).map(|(name, of)| (name.as_str(), of)) {
                Some(("identity", of)) => {
                    known_fields(&format!("{path}.identity"), of, &[])?;
                    encrypts.get_or_insert(false);
                }
                Some(("aesgcm", of)) => {
                    let path = format!("{path}.aesgcm");
                    known_fields(&path, of, &["keys"])?;
                    for (path, key) in list(&format!("{path}.keys"), &of["keys"])? {
                        keys.push(NamedKey::read(&path, key)?);
                    }
                    encrypts.get_or_insert(true);
                }
                Some((other, _)) => {
                    return wrong(path, format!("there is no provider {other:?} here; use aesgcm or identity"));
                }
                None => return wrong(path, "must have one field, aesgcm or identity"),
            }
        }
        let named = |key: &NamedKey| keys.iter().filter(|other| other.name == key.name).count() > 1;
        if let Some(twice) = keys.iter().find(|key| named(key)) {
            return wrong(
                path,
                format!("two keys are called {:?}; a value says by its name which one wrote it", twice.name),
            );
        }
        Ok(Self { collections, keys, encrypts: encrypts.unwrap_or(false) })
    }
}

impl NamedKey {
    fn read(path: &str, key: &Value) -> Result<Self, EncryptionConfigError> {
        known_fields(path, key, &["name", "secret"])?;
        let is_name = |name: &&str| !name.is_empty() && name.len() <= NAME_MAX && !name.contains([':', '\n']);
        let Some(name) = key["name"].as_str().filter(is_name) else {
            return wrong(format!("{path}.name"), "must be a word without a colon");
        };
        // Whatever is wrong with it, it is not shown.
        let secret = key["secret"].as_str().and_then(|text| STANDARD.decode(text.trim()).ok());
        let Some(secret) = secret else {
            return wrong(format!("{path}.secret"), "must be base64, as from `head -c 32 /dev/urandom | base64`");
        };
        let algorithm = match secret.len() {
            16 => &AES_128_GCM,
            32 => &AES_256_GCM,
            length => {
                let reason = format!("has {length} bytes and must have 32 (or 16): `head -c 32 /dev/urandom | base64`");
                return wrong(format!("{path}.secret"), reason);
            }
        };
        let key = UnboundKey::new(algorithm, &secret);
        let key = key.map_err(|_| EncryptionConfigError { path: path.to_owned(), reason: "is no key".to_owned() })?;
        Ok(Self { name: name.to_owned(), key: LessSafeKey::new(key) })
    }
}

fn wrong<T>(path: impl Into<String>, reason: impl Into<String>) -> Result<T, EncryptionConfigError> {
    Err(EncryptionConfigError { path: path.into(), reason: reason.into() })
}

fn list<'a>(
    path: &str,
    value: &'a Value,
) -> Result<impl Iterator<Item = (String, &'a Value)> + use<'a>, EncryptionConfigError> {
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
        return wrong(path, "must be a list of at least one");
    };
    let path = path.to_owned();
    Ok(items.iter().enumerate().map(move |(at, item)| (format!("{path}[{at}]"), item)))
}

/// A field that is written wrong is one that says nothing, and here that is a secret on disk.
fn known_fields(path: &str, value: &Value, known: &[&str]) -> Result<(), EncryptionConfigError> {
    let Some(fields) = value.as_object() else { return wrong(path, "must be an object") };
    match fields.keys().find(|field| !known.contains(&field.as_str())) {
        Some(field) => wrong(path, format!("there is no field {field:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    /// Keys by name, the first of which writes; each is made of its byte.
    pub(crate) fn encryption(keys: &[(&str, u8)]) -> Encryption {
        Encryption::from_config(&config(keys)).unwrap()
    }

    fn config(keys: &[(&str, u8)]) -> Value {
        let key = |(name, byte): &(&str, u8)| json!({ "name": name, "secret": STANDARD.encode([*byte; 32]) });
        let keys: Vec<_> = keys.iter().map(key).collect();
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
            "resources": [{ "resources": ["secrets"], "providers": [{ "aesgcm": { "keys": keys } }, { "identity": {} }] }],
        })
    }

    fn secret(name: &str) -> Key {
        Key::new("secrets", "default", name)
    }

    fn sealed(with: &Encryption, key: &Key, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        with.seal(key, value, &mut out);
        out
    }

    #[test]
    fn value_is_written_with_the_first_key_and_read_with_any() {
        let (old, new) = (encryption(&[("one", 1)]), encryption(&[("two", 2), ("one", 1)]));
        let value = br#"{"metadata":{},"data":{"password":"cGF0"}}"#;
        let (by_old, by_new) = (sealed(&old, &secret("a"), value), sealed(&new, &secret("a"), value));
        assert!(by_old.starts_with(b"k8s:enc:aesgcm:v1:one:") && by_new.starts_with(b"k8s:enc:aesgcm:v1:two:"));
        assert_ne!(by_old, sealed(&old, &secret("a"), value), "no nonce comes twice");
        assert_eq!(new.open(&secret("a"), &by_old).unwrap().unwrap(), value);
        assert_eq!(new.open(&secret("a"), &by_new).unwrap().unwrap(), value);
        assert!(new.is_current("secrets", &by_new) && !new.is_current("secrets", &by_old));
        assert!(!new.is_current("secrets", value) && new.is_current("configmaps", value));
        let pod = Key::new("pods", "default", "a");
        assert_eq!(sealed(&new, &pod, value), value, "nobody asked for that");
        assert_eq!(new.open(&secret("a"), value), Ok(None), "and what is plain is read");
    }

    #[test]
    fn value_that_no_key_opens_says_which_key_is_missing_and_stays_what_it_is() {
        let value = sealed(&encryption(&[("one", 1)]), &secret("a"), b"{}");
        let told = |with: &Encryption, key: &Key, value: &[u8]| with.open(key, value).unwrap_err();
        let no_key = Encryption::default();
        assert!(told(&no_key, &secret("a"), &value).contains("key \"one\", which is not there"));
        let another = encryption(&[("one", 9)]);
        assert!(told(&another, &secret("a"), &value).contains("another one"));
        let own = encryption(&[("one", 1)]);
        assert!(told(&own, &secret("b"), &value).contains("moved on disk"));
        for at in "k8s:enc:aesgcm:v1:one:".len()..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert!(own.open(&secret("a"), &changed).is_err(), "byte {at}");
            assert!(own.open(&secret("a"), &value[..at]).is_err(), "cut at {at}");
        }
        let foreign = b"k8s:enc:kms:v2:cloud:\xff\x00";
        assert!(told(&own, &secret("a"), foreign).contains("kms:v2:cloud, which this program does not have"));
        assert_eq!(sealed(&another, &secret("a"), &value), value, "it is not encrypted twice");
    }

    #[test]
    fn mistake_in_a_configuration_is_told_with_its_place() {
        let told = |change: &dyn Fn(&mut Value)| {
            let mut config = config(&[("one", 1), ("two", 2)]);
            change(&mut config);
            Encryption::from_config(&config).unwrap_err().to_string()
        };
        let keys = "resources[0].providers[0].aesgcm.keys";
        let key = |config: &mut Value, field: &str, to: Value| {
            config["resources"][0]["providers"][0]["aesgcm"]["keys"][1][field] = to;
        };
        assert!(told(&|it| it["kind"] = "Pod".into()).starts_with("kind: must be EncryptionConfiguration"));
        assert!(told(&|it| it["resources"] = json!([])).starts_with("resources: must be a list"));
        assert!(
            told(&|it| it["resources"][0]["resources"][0] = "pods".into()).contains("\"pods\" cannot be encrypted")
        );
        assert!(told(&|it| it["resources"][0]["resources"] = json!(["secrets", "secrets"])).contains("named twice"));
        assert!(told(&|it| it["resources"][0]["providers"] = json!([{ "kms": {} }])).contains("no provider \"kms\""));
        assert!(told(&|it| key(it, "name", "one".into())).contains("two keys are called \"one\""));
        assert!(told(&|it| key(it, "name", "a:b".into())).starts_with(&format!("{keys}[1].name: ")));
        let short = told(&|it| key(it, "secret", STANDARD.encode([7; 24]).into()));
        assert!(short.starts_with(&format!("{keys}[1].secret: has 24 bytes")), "{short}");
        let shown = told(&|it| key(it, "secret", "not base64!".into()));
        assert!(shown.contains("must be base64") && !shown.contains("not base64"), "{shown}");
        assert!(told(&|it| key(it, "sercet", "x".into())).contains("no field \"sercet\""));
        assert_eq!(Encryption::from_config(&Value::Null).unwrap_err().path, "kind");
    }
}
