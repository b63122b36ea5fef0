//! What was measured, as a table a person can paste.

/// One line.
#[derive(Debug, Default)]
pub(crate) struct Row {
    what: String,
    ours: String,
    value: f64,
    peer: String,
    ratio: String,
    aim: String,
    cost: String,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    pub(crate) fn ours(mut self, value: f64, unit: &str) -> Self {
        self.value = value;
        self.ours = format!("{} {unit}", number(value));
        self
    }

    /// What the peer did in the same run; the aim is to be no slower.
    pub(crate) fn beside(mut self, peer: &str, value: f64, unit: &str) -> Self {
        self.peer = format!("{peer}: {} {unit}", number(value));
        self.ratio = format!("{:.2}", self.value / value);
        self.aim = format!(">= 1: {}", met(self.value >= value));
        self
    }

    /// What the peer took in the same run; the aim is to need at most this part of it.
    pub(crate) fn within(mut self, peer: &str, value: f64, unit: &str, part: f64) -> Self {
        self.peer = format!("{peer}: {} {unit}", number(value));
        self.ratio = format!("1/{:.1}", value / self.value);
        self.aim = format!("1/{:.0}: {}", 1.0 / part, met(self.value <= value * part));
        self
    }

    pub(crate) fn at_least(mut self, aim: f64) -> Self {
        self.aim = format!(">= {}: {}", number(aim), met(self.value >= aim));
        self
    }

    pub(crate) fn at_most(mut self, aim: f64) -> Self {
        self.aim = format!("< {}: {}", number(aim), met(self.value < aim));
        self
    }

    /// Processor time per operation, with whose it is.
    pub(crate) fn cost(mut self, cost: impl Into<String>) -> Self {
        self.cost = cost.into();
        self
    }
}

fn met(is: bool) -> &'static str {
    if is { "met" } else { "not met" }
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Every line, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("{}: {} {} {}", row.what, row.ours, row.peer, row.cost);
        self.rows.push(row);
    }

    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(crate) fn print(&self) {
        println!("| what | Adieu | beside | ratio | aim | processor time |\n|---|---|---|---|---|---|");
        for Row { what, ours, peer, ratio, aim, cost, .. } in &self.rows {
            println!("| {what} | {ours} | {peer} | {ratio} | {aim} | {cost} |");
        }
        for note in &self.notes {
            println!("\n{note}");
        }
    }
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
