//! What names, labels and their like may look like, with upstream's sentences for what they may not.

/// A generated name's prefix is cut to this, so that prefix and five random characters make a DNS label.
pub(crate) const GENERATED_BASE_MAX: usize = 58;

/// What the name of an object may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// `[a-z0-9]([-a-z0-9.]*[a-z0-9])?`, 253.
    Subdomain,
    /// The same without dots, 63.
    Label,
    /// Anything that can be one segment of a path.
    PathSegment,
}

impl Rule {
    /// What is wrong with `name`.
    pub(crate) fn complaint(self, name: &str) -> Option<String> {
        match self {
            Self::Subdomain => subdomain(name),
            Self::Label => label(name),
            Self::PathSegment => path_segment(name),
        }
    }
}

const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_TEXT: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn longer_than(text: &str, limit: usize) -> Option<String> {
    (text.len() > limit).then(|| format!("must be no more than {limit} bytes"))
}

/// Lower-case letters and digits, with `-` inside.
fn is_label(text: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(word) && text.ends_with(word) && text.chars().all(|c| word(c) || c == '-')
}

/// A DNS-1123 label.
pub(crate) fn label(text: &str) -> Option<String> {
    longer_than(text, 63).or_else(|| (!is_label(text)).then(|| LABEL_TEXT.to_owned()))
}

/// A DNS-1123 subdomain.
pub(crate) fn subdomain(text: &str) -> Option<String> {
    longer_than(text, 253).or_else(|| (!text.split('.').all(is_label)).then(|| SUBDOMAIN_TEXT.to_owned()))
}

fn path_segment(text: &str) -> Option<String> {
    match text {
        "." | ".." => Some(format!("may not be '{text}'")),
        _ => text.chars().find(|c| matches!(c, '/' | '%')).map(|c| format!("may not contain '{c}'")),
    }
}

/// Letters, digits, `-_.` inside.
fn is_word(text: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(end) && text.ends_with(end) && text.chars().all(|c| end(c) || matches!(c, '-' | '_' | '.'))
}

/// A key of a label or annotation: an optional DNS prefix, `/`, and a word of at most 63.
pub(crate) fn qualified(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            return Some(format!(
                "a qualified name {QUALIFIED_TEXT} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ));
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".to_owned());
        }
        if let Some(text) = subdomain(prefix) {
            return Some(format!("prefix part {text}"));
        }
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    longer_than(name, 63)
        .map(|text| format!("name part {text}"))
        .or_else(|| (!is_word(name)).then(|| QUALIFIED_TEXT.to_owned()))
}

/// A label's value: empty, or a word of at most 63.
pub(crate) fn label_value(value: &str) -> Option<String> {
    longer_than(value, 63).or_else(|| (!value.is_empty() && !is_word(value)).then(|| LABEL_VALUE_TEXT.to_owned()))
}

/// A port's name: at most 15, lower case, digits and single `-`, at least one letter.
pub(crate) fn port_name(name: &str) -> Option<String> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.len() > 15 {
        Some("must be no more than 15 characters".to_owned())
    } else if !name.chars().all(|c| word(c) || c == '-') {
        Some("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned())
    } else if !name.chars().any(|c| c.is_ascii_lowercase()) {
        Some("must contain at least one letter (a-z)".to_owned())
    } else if name.contains("--") {
        Some("must not contain consecutive hyphens".to_owned())
    } else if !(name.starts_with(word) && name.ends_with(word)) {
        Some("must not begin or end with a hyphen".to_owned())
    } else {
        None
    }
}

/// A key of a ConfigMap or Secret.
pub(crate) fn data_key(key: &str) -> Option<String> {
    let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    if key == "." || key == ".." {
        return Some(format!("must not be '{key}'"));
    }
    let good = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    longer_than(key, 253).or_else(|| (!good).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rule() {
        for good in ["a", "web-0", "a.b.c", "1"] {
            assert_eq!(subdomain(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", &"a".repeat(254)] {
            assert!(subdomain(bad).is_some(), "{bad}");
        }
        assert!(label("a.b").is_some() && label(&"a".repeat(64)).is_some() && label("a-b").is_none());
        assert!(path_segment("..").is_some() && path_segment("a:b").is_none() && path_segment("a/b").is_some());
    }

    #[test]
    fn label_keys_values_and_port_names_follow_their_rules() {
        for good in ["a", "example.com/A_b.c", "kubernetes.io/metadata.name"] {
            assert_eq!(qualified(good), None, "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "-a", "UPPER.com/a", &"x".repeat(64)] {
            assert!(qualified(bad).is_some(), "{bad}");
        }
        assert!(label_value("").is_none() && label_value("a b").is_some());
        assert!(port_name("http-1").is_none() && port_name("80").is_some() && port_name("a--b").is_some());
        assert!(data_key("a_B.c").is_none() && data_key("..").is_some() && data_key("a/b").is_some());
    }
}
