//! `dnsConfig` of a pod: no more than resolvers take.

use std::net::IpAddr;

use serde_json::Value;

use crate::rules::names;
use crate::rules::value::{list, word};
use crate::status::Cause;

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;
const FIELD: &str = "spec.dnsConfig";

pub(super) fn validate(config: &Value, causes: &mut Vec<Cause>) {
    let servers = list(config, "nameservers");
    if servers.len() > NAMESERVERS_MAX {
        let text = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        causes.push(Cause::invalid(format!("{FIELD}.nameservers"), config["nameservers"].clone(), &text));
    }
    for (index, server) in servers.iter().enumerate() {
        if server.as_str().is_none_or(|server| server.parse::<IpAddr>().is_err()) {
            let text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(Cause::invalid(format!("{FIELD}.nameservers[{index}]"), server.clone(), text));
        }
    }
    let searches: Vec<&str> = list(config, "searches").iter().filter_map(Value::as_str).collect();
    if searches.len() > SEARCHES_MAX {
        let text = format!("must not have more than {SEARCHES_MAX} search paths");
        causes.push(Cause::invalid(format!("{FIELD}.searches"), config["searches"].clone(), &text));
    }
    if searches.join(" ").len() > SEARCH_CHARACTERS_MAX {
        let text =
            format!("must not have more than {SEARCH_CHARACTERS_MAX} characters (including spaces) in the search list");
        causes.push(Cause::invalid(format!("{FIELD}.searches"), config["searches"].clone(), &text));
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        // Names that no host has are searched, too: an underscore is as good as a letter.
        let plain = search.strip_suffix('.').unwrap_or(search).replace('_', "u");
        if let Some(text) = names::subdomain(&plain) {
            causes.push(Cause::invalid(format!("{FIELD}.searches[{index}]"), *search, &text));
        }
    }
    for (index, option) in list(config, "options").iter().enumerate() {
        if word(option, "name").is_empty() {
            causes.push(Cause::required(format!("{FIELD}.options[{index}]"), "must not be empty"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// [DN-17]
    #[test]
    fn dns_config_is_refused_where_resolvers_would_not_take_it() {
        let refused = |config: Value| {
            let mut causes = Vec::new();
            validate(&config, &mut causes);
            causes.into_iter().map(|cause| cause.field).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(refused(Value::Null), none);
        let good = json!({
            "nameservers": ["192.0.2.1", "2001:db8::1"], "searches": [".", "a_b.example.", "x"],
            "options": [{ "name": "ndots", "value": "1" }],
        });
        assert_eq!(refused(good), none);
        let many: Vec<String> = (0..40).map(|n| format!("s{n}.example")).collect();
        assert_eq!(refused(json!({ "searches": many })), ["spec.dnsConfig.searches"]);
        assert_eq!(refused(json!({ "searches": vec!["x".repeat(200); 11] })), ["spec.dnsConfig.searches"]);
        assert_eq!(refused(json!({ "searches": ["a b"] })), ["spec.dnsConfig.searches[0]"]);
        let servers = refused(json!({ "nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "no"] }));
        assert_eq!(servers, ["spec.dnsConfig.nameservers", "spec.dnsConfig.nameservers[3]"]);
        assert_eq!(refused(json!({ "options": [{ "value": "1" }] })), ["spec.dnsConfig.options[0]"]);
    }
}
