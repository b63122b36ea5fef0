//! What a backend says of its own paths, told as the client has to ask for them.

/// Where a backend is, in its own words and in the client's.
#[derive(Clone, Debug)]
pub(super) struct Links {
    /// The path that ends with `/proxy`.
    pub(super) prefix: String,
    /// The backend's own address.
    pub(super) backend: String,
    /// The address by which the client reached this server.
    pub(super) client: String,
}

impl Links {
    /// A link as the client must follow it; `None` if it is right as it is. Relative links are, and those to other hosts.
    pub(super) fn rewritten(&self, link: &str) -> Option<String> {
        let (origin, rest) = split_origin(link);
        let host = origin.rsplit_once("//").map_or("", |(_, host)| host);
        let elsewhere = !host.is_empty() && host != self.backend && host != self.client;
        if elsewhere || !rest.starts_with('/') {
            return None;
        }
        // A path that names this server stays with it; every other becomes one of this server's by having no host.
        let origin = if host == self.client { origin } else { "" };
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let prefix = if path.starts_with(&self.prefix) { "" } else { self.prefix.as_str() };
        let new = format!("{origin}{prefix}{rest}");
        (new != link).then_some(new)
    }
}

/// `http://host`, and what follows.
fn split_origin(link: &str) -> (&str, &str) {
    let slashes = match link.find("//") {
        Some(0) => 0,
        Some(at) if link[..at].ends_with(':') && link[..at - 1].bytes().all(|b| b.is_ascii_alphanumeric()) => at,
        _ => return ("", link),
    };
    let host = slashes + 2;
    let end = link[host..].find(['/', '?', '#']).map_or(link.len(), |at| host + at);
    link.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxied_links_are_rewritten_below_the_proxy_path() {
        let prefix = "/api/v1/namespaces/a/pods/p/proxy";
        let links = Links { prefix: prefix.into(), backend: "10.0.0.2:80".into(), client: "api:6443".into() };
        let mended = |link: &str| links.rewritten(link).unwrap_or_else(|| link.to_owned());
        for (link, expected) in [
            ("/", "/api/v1/namespaces/a/pods/p/proxy/"),
            ("/x/?y=/z#w", "/api/v1/namespaces/a/pods/p/proxy/x/?y=/z#w"),
            ("http://10.0.0.2:80/x", "/api/v1/namespaces/a/pods/p/proxy/x"),
            ("//10.0.0.2:80/x", "/api/v1/namespaces/a/pods/p/proxy/x"),
            ("https://api:6443/x", "https://api:6443/api/v1/namespaces/a/pods/p/proxy/x"),
            ("/api/v1/namespaces/a/pods/p/proxy/x", "/api/v1/namespaces/a/pods/p/proxy/x"),
            ("x/y", "x/y"),
            ("?q=//a/b", "?q=//a/b"),
            ("#top", "#top"),
            ("mailto:a@b", "mailto:a@b"),
            ("http://elsewhere/x", "http://elsewhere/x"),
            ("", ""),
        ] {
            assert_eq!(mended(link), expected, "{link}");
        }
    }
}
