//! An end as a picture: one file, no script, no font of its own, readable on dark and light.

use std::fmt::Write as _;

use api::TerminationRecord;
use api::termination::step;

use super::chart::{Bar, BarKind, bars, length, seconds, title};
use crate::xml::escaped_line;

const WIDTH: i64 = 960;
const LABELS: i64 = 190;
const ROW: i64 = 26;
const TOP: i64 = 84;

/// The picture.
pub fn picture(namespace: &str, record: &TerminationRecord, remark: &str) -> String {
    let (bars, length) = (bars(record), length(record));
    let rows = i64::try_from(bars.len()).unwrap_or(0);
    let height = TOP + rows * ROW + 56;
    let room = WIDTH - LABELS - 150;
    let place = |at: i64| LABELS + at.clamp(0, length) * room / length;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\" \
         role=\"img\">\n<title>{0}</title>\n<style>svg{{color-scheme:light dark}} text{{fill:#222}} .s{{fill:#666}} .d{{fill:#7aa6d8}} \
         .h{{fill:#c9a227}} .t{{fill:#3c8f5a}} .k{{fill:#c0392b}} .c{{fill:#888}} \
         @media (prefers-color-scheme: dark){{text{{fill:#eee}} .s{{fill:#aaa}}}}</style>\n\
         <text x=\"16\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{0}</text>\n\
         <text x=\"16\" y=\"44\">{1}</text>\n<text x=\"16\" y=\"62\" class=\"s\">{2}</text>\n",
        escaped_line(&title(namespace, record)),
        escaped_line(&record.summary),
        escaped_line(remark),
    );
    let deadline = record.requests.last().and_then(|last| last.deadline_milliseconds).filter(|at| *at <= length);
    if let Some(at) = deadline {
        let x = place(at);
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{}\" stroke=\"#c0392b\" stroke-dasharray=\"4 3\"/>",
            TOP - 8,
            height - 40
        );
        let _ =
            writeln!(out, "<text x=\"{x}\" y=\"{}\" class=\"s\" text-anchor=\"middle\">deadline</text>", height - 28);
    }
    for (row, bar) in (0..).zip(&bars) {
        draw_bar(bar, TOP + row * ROW, length, &place, &mut out);
    }
    for own in record.steps.iter().filter(|own| own.type_ == step::KILL_ASKED) {
        let x = place(own.after_milliseconds);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">KILL {}</text>",
            TOP - 12,
            escaped_line(&own.container)
        );
    }
    let _ = writeln!(out, "<text x=\"{LABELS}\" y=\"{}\" class=\"s\">0</text>", height - 12);
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" class=\"s\" text-anchor=\"end\">{}</text>",
        place(length),
        height - 12,
        seconds(length)
    );
    out.push_str("</svg>\n");
    out
}

fn draw_bar(bar: &Bar, y: i64, length: i64, place: &dyn Fn(i64) -> i64, out: &mut String) {
    let class = match bar.kind {
        BarKind::Drain => "d",
        BarKind::Hook => "h",
        BarKind::Stop => "t",
        BarKind::Killed => "k",
        BarKind::Clear => "c",
    };
    let (from, to) = (place(bar.from), place(bar.to.unwrap_or(length)));
    let width = (to - from).max(2);
    let took = bar.to.map_or_else(|| "goes on".to_owned(), |to| seconds(to - bar.from));
    let remark = if bar.remark.is_empty() { took } else { format!("{took}, {}", bar.remark) };
    let _ = writeln!(out, "<text x=\"16\" y=\"{}\">{}</text>", y + 15, escaped_line(&bar.label));
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{from}\" y=\"{y}\" width=\"{width}\" height=\"{}\" rx=\"2\"/>",
        ROW - 6
    );
    let _ =
        writeln!(out, "<text x=\"{}\" y=\"{}\" class=\"s\">{}</text>", from + width + 6, y + 15, escaped_line(&remark));
}
