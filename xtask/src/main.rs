//! The chores of the tree, one subcommand each.

mod schema_table;

use anyhow::{Result, bail};
use std::env;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        Some("schema-table") => schema_table::run(arguments),
        Some(other) => bail!("no chore is called {other:?}; try: schema-table"),
        None => bail!("which chore? try: schema-table"),
    }
}
