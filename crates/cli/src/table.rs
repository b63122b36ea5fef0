//! Rows for people: columns as wide as what is in them, three blanks apart, as kubectl prints them.

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Between two columns.
const GAP: usize = 3;

/// What a server makes of objects for people.
#[derive(Deserialize, Clone, Default, Debug)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table {
    /// The heads. `null` in events of a watch after the first.
    #[serde(default, deserialize_with = "null_is_none")]
    pub column_definitions: Vec<Column>,
    /// The rows.
    #[serde(default, deserialize_with = "null_is_none")]
    pub rows: Vec<Row>,
}

/// Go writes a list of nothing as `null`.
fn null_is_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(list: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(list)?.unwrap_or_default())
}

/// A column.
#[derive(Deserialize, Clone, Debug)]
pub(crate) struct Column {
    /// Its head.
    pub name: String,
    /// Above 0 it is shown with `-o wide` only.
    #[serde(default)]
    pub priority: i32,
}

/// An object in a row.
#[derive(Deserialize, Clone, Debug)]
pub(crate) struct Row {
    /// One for each column.
    #[serde(default)]
    pub cells: Vec<Value>,
    /// The object, or its metadata.
    #[serde(default)]
    pub object: Value,
}

/// How rows are shown.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Look {
    /// With the columns that are left out otherwise.
    pub wide: bool,
    /// With the namespace first.
    pub namespaces: bool,
    /// With the labels last.
    pub labels: bool,
}

impl Table {
    /// The heads.
    pub(crate) fn heads(&self, look: Look) -> Vec<String> {
        let own = self.column_definitions.iter().filter(|column| look.wide || column.priority == 0);
        let own = own.map(|column| column.name.to_uppercase());
        let before = look.namespaces.then(|| "NAMESPACE".to_owned());
        before.into_iter().chain(own).chain(look.labels.then(|| "LABELS".to_owned())).collect()
    }

    /// The cells of a row under these heads.
    pub(crate) fn cells(&self, row: &Row, look: Look) -> Vec<String> {
        let shown = self.column_definitions.iter().zip(&row.cells);
        let own = shown.filter(|(column, _)| look.wide || column.priority == 0).map(|(_, cell)| cell_text(cell));
        let metadata = &row.object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default().to_owned();
        let labels = labels(metadata);
        look.namespaces.then_some(namespace).into_iter().chain(own).chain(look.labels.then_some(labels)).collect()
    }
}

/// `a=b,c=d`.
pub(crate) fn labels(metadata: &Value) -> String {
    let all = metadata["labels"].as_object();
    let all: Vec<String> =
        all.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}

fn cell_text(cell: &Value) -> String {
    let text = match cell {
        Value::String(text) => text.clone(),
        Value::Null => "<none>".to_owned(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    };
    plain(&text)
}

/// On one line, and nothing in it that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let more = if first.len() < text.trim_end().len() { "..." } else { "" };
    first.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).chain(more.chars()).collect()
}

/// Widths that grow with what is printed, so that a watch stays in line.
#[derive(Default, Debug)]
pub(crate) struct Widths(Vec<usize>);

impl Widths {
    /// Makes room for these rows.
    pub(crate) fn fit<'a>(&mut self, rows: impl IntoIterator<Item = &'a Vec<String>>) {
        for row in rows {
            self.0.resize(self.0.len().max(row.len()), 0);
            for (width, cell) in self.0.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }

    /// A line.
    pub(crate) fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (number, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if number + 1 < row.len() {
                let width = self.0.get(number).copied().unwrap_or(0) + GAP;
                line.push_str(&" ".repeat(width.saturating_sub(cell.chars().count())));
            }
        }
        line.trim_end().to_owned()
    }
}

/// All rows, aligned, a line each.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let mut widths = Widths::default();
    widths.fit(rows);
    rows.iter().map(|row| widths.line(row) + "\n").collect()
}

/// How old something is, as kubectl says it.
pub(crate) fn age(age: SignedDuration) -> String {
    let seconds = age.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |whole: i64, unit: &str, rest: i64, part: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{part}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => with(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        _ => with(days / 365, "y", days % 365, "d"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn table_shows_columns_of_priority_only_when_wide_and_aligns_them() {
        let table: Table = serde_json::from_value(json!({
            "columnDefinitions": [{ "name": "Name", "priority": 0 }, { "name": "Restarts" }, { "name": "IP", "priority": 1 }],
            "rows": [
                { "cells": ["web", 0, "10.0.0.1"], "object": { "metadata": { "namespace": "shop", "labels": { "a": "b" } } } },
                { "cells": ["a-long-name\u{1b}[2J", 12, null], "object": { "metadata": { "namespace": "till" } } },
            ],
        }))
        .unwrap();
        let shown = |look: Look| {
            let mut rows = vec![table.heads(look)];
            rows.extend(table.rows.iter().map(|row| table.cells(row, look)));
            aligned(&rows)
        };
        assert_eq!(shown(Look::default()), "NAME              RESTARTS\nweb               0\na-long-name [2J   12\n");
        let all = shown(Look { wide: true, namespaces: true, labels: true });
        assert!(
            all.starts_with("NAMESPACE   NAME")
                && all.contains("10.0.0.1   a=b\n")
                && all.contains("<none>     <none>\n"),
            "{all}"
        );
    }

    #[test]
    fn later_event_of_a_watch_has_no_heads() {
        let event = json!({ "columnDefinitions": null, "rows": [{ "cells": ["web"], "object": {} }] });
        let table: Table = serde_json::from_value(event).unwrap();
        assert!(table.column_definitions.is_empty() && table.rows.len() == 1);
    }

    #[test]
    fn ages_are_said_as_kubectl_says_them() {
        for (seconds, said) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (36_000, "10h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_158_400, "2y1d"),
        ] {
            assert_eq!(age(SignedDuration::from_secs(seconds)), said, "{seconds}");
        }
    }

    #[test]
    fn cell_of_several_lines_shows_the_first() {
        assert_eq!(plain("one\ntwo"), "one...");
        assert_eq!(plain("one\n"), "one");
    }
}
