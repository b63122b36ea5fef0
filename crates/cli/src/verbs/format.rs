//! `-o`: how objects are printed.

use std::fmt::Write as _;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde_json::Value;

use super::jsonpath::Template;
use crate::table;

/// How objects are printed.
#[derive(Clone, PartialEq, Debug)]
pub enum Format {
    /// Rows for people.
    Table,
    /// The same, with every column.
    Wide,
    /// `pod/web`.
    Name,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// What a template makes of them.
    JsonPath(OutputTemplate),
    /// Columns of one's own.
    Columns(Vec<(String, OutputTemplate)>),
}

/// A template of somebody's own.
#[derive(Clone, PartialEq, Debug)]
pub struct OutputTemplate(Template);

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| Template::parse(text).map(OutputTemplate).map_err(|error| error.to_string());
        match text.split_once('=').unwrap_or((text, "")) {
            ("table" | "", "") => Ok(Self::Table),
            ("wide", "") => Ok(Self::Wide),
            ("name", "") => Ok(Self::Name),
            ("json", "") => Ok(Self::Json),
            ("yaml", "") => Ok(Self::Yaml),
            ("jsonpath", template) if !template.is_empty() => Ok(Self::JsonPath(parse(template)?)),
            ("custom-columns", columns) if !columns.is_empty() => {
                let column = |column: &str| match column.split_once(':') {
                    Some((head, path)) if !path.is_empty() => Ok((head.to_owned(), parse(path)?)),
                    _ => Err(format!("{column:?} is not of the form HEAD:.path")),
                };
                columns.split(',').map(column).collect::<Result<_, _>>().map(Self::Columns)
            }
            _ => Err("use wide, name, json, yaml, jsonpath=TEMPLATE or custom-columns=HEAD:.path,…".to_owned()),
        }
    }
}

impl Format {
    /// Whether the server makes the rows.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// Prints a value that is whole: an object or a list. Rows and names are not of whole values.
    pub(crate) fn print(&self, value: &Value) -> Result<String> {
        Ok(match self {
            Self::Yaml => yaml(value)?,
            Self::JsonPath(OutputTemplate(template)) => template.render(value),
            Self::Columns(columns) => {
                let items = value["items"].as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                let mut rows = vec![columns.iter().map(|(head, _)| head.clone()).collect::<Vec<_>>()];
                rows.extend(items.iter().map(|item| {
                    let cell = |template: &OutputTemplate| match template.0.values(item) {
                        none if none.is_empty() => "<none>".to_owned(),
                        some => table::plain(&some.join(",")),
                    };
                    columns.iter().map(|(_, template)| cell(template)).collect()
                }));
                table::aligned(&rows)
            }
            Self::Json | Self::Table | Self::Wide | Self::Name => format!("{}\n", serde_json::to_string_pretty(value)?),
        })
    }
}

/// A value as YAML.
pub(crate) fn yaml(value: &Value) -> Result<String> {
    let mut text = serde_saphyr::to_string(value).context("this cannot be written as YAML")?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// A field and its value for `describe`, indented.
pub(crate) fn field(out: &mut String, indent: usize, name: &str, value: &str) {
    let label = format!("{}{name}:", " ".repeat(indent));
    let _ = writeln!(out, "{}", format!("{label:<20} {value}").trim_end());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn format_is_read_as_kubectl_writes_it_and_refused_with_a_way_out() {
        for text in ["table", "wide", "name", "json", "yaml", "jsonpath={.a}", "custom-columns=A:.a,B:.b"] {
            assert!(text.parse::<Format>().is_ok(), "{text}");
        }
        for text in ["xml", "jsonpath", "jsonpath={.a", "custom-columns=A", "json=x"] {
            assert!(!text.parse::<Format>().unwrap_err().is_empty(), "{text}");
        }
    }

    #[test]
    fn columns_of_ones_own_are_aligned_and_show_what_is_absent() {
        let list = json!({ "items": [{ "a": "x", "b": [1, 2] }, { "a": "longer" }] });
        let format: Format = "custom-columns=A:.a,B:.b[*]".parse().unwrap();
        assert_eq!(format.print(&list).unwrap(), "A        B\nx        1,2\nlonger   <none>\n");
    }

    #[test]
    fn yaml_reads_back_as_the_same_value() {
        let value = json!({ "a": "true", "b": ["1", 2, null], "c": { "d": "x: y\n- z" }, "e": "0x10", "f": "" });
        let text = yaml(&value).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }
}
