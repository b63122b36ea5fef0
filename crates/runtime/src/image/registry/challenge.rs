//! `WWW-Authenticate`: how a registry asks for credentials.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// What a registry asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Challenge {
    /// A user name and a password with every request.
    Basic,
    /// A token from the server at `realm`.
    Bearer { realm: String, service: Option<String>, scope: Option<String>, error: Option<String> },
}

/// The challenge to answer: a token if one is asked for, else a password. `None` if neither is.
pub(super) fn strongest(headers: &HeaderMap) -> Option<Challenge> {
    let all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).flat_map(parse);
    all.max_by_key(|challenge| matches!(challenge, Challenge::Bearer { .. }))
}

/// One header may hold several challenges, divided by the same comma as their parameters.
fn parse(header: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = header.trim();
    let mut scheme: Option<(String, Vec<(String, String)>)> = None;
    while !rest.is_empty() {
        let (word, after) = token(rest);
        if word.is_empty() {
            // A character that belongs nowhere; what follows may still make sense.
            rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default();
            continue;
        }
        let after = after.trim_start();
        match after.strip_prefix('=') {
            Some(value) => {
                let (value, after) = quoted_or_token(value.trim_start());
                if let Some((_, parameters)) = &mut scheme {
                    parameters.push((word.to_ascii_lowercase(), value));
                }
                rest = after;
            }
            None => {
                found.extend(scheme.replace((word.to_ascii_lowercase(), Vec::new())).and_then(challenge));
                rest = after;
            }
        }
        rest = rest.trim_start_matches([' ', '\t', ',']);
    }
    found.extend(scheme.and_then(challenge));
    found
}

fn challenge((scheme, parameters): (String, Vec<(String, String)>)) -> Option<Challenge> {
    let get = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    match scheme.as_str() {
        "basic" => Some(Challenge::Basic),
        "bearer" => Some(Challenge::Bearer {
            realm: get("realm")?,
            service: get("service"),
            scope: get("scope"),
            error: get("error"),
        }),
        _ => None,
    }
}

fn token(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_whitespace() || c == ',' || c == '=' || c == '"').unwrap_or(text.len());
    text.split_at(end)
}

fn quoted_or_token(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (word, rest) = token(text);
        return (word.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>, error: Option<&str>) -> Challenge {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Challenge::Bearer { realm: realm.into(), service: own(service), scope: own(scope), error: own(error) }
    }

    #[test]
    fn challenges_of_real_registries_are_understood() {
        assert_eq!(
            parse(
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#
            ),
            [bearer(
                "https://auth.docker.io/token",
                Some("registry.docker.io"),
                Some("repository:a/b:pull,push"),
                None
            )]
        );
        assert_eq!(parse(r#"Basic realm="my \"own\" registry""#), [Challenge::Basic]);
        assert_eq!(parse("basic"), [Challenge::Basic]);
        assert_eq!(
            parse(r#"Basic realm=x, bearer realm=https://t , error="insufficient_scope""#),
            [Challenge::Basic, bearer("https://t", None, None, Some("insufficient_scope"))]
        );
    }

    #[test]
    fn malformed_registry_challenge_is_ignored() {
        for text in
            ["", ",", "=", "\"", "Bearer", "Bearer service=x", "Negotiate abc=", "Bearer realm=\"x", "\u{e9}=\\"]
        {
            let found = parse(text);
            assert!(found.is_empty() || text.contains("realm"), "{text:?}: {found:?}");
        }
    }

    #[test]
    fn a_token_goes_before_a_password() {
        let mut headers = HeaderMap::new();
        assert_eq!(strongest(&headers), None);
        headers.append(WWW_AUTHENTICATE, "Bearer realm=r".parse().unwrap());
        headers.append(WWW_AUTHENTICATE, "Basic realm=r".parse().unwrap());
        assert_eq!(strongest(&headers), Some(bearer("r", None, None, None)));
    }
}
