//! `signalbox show counters`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use comfy_table::CellAlignment;
use serde_json::json;
use signalbox_api::v0;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, block_on};
use crate::commands::Run;
use crate::print::JsonArray;
use crate::print::table;

#[derive(Debug, Args)]
pub(crate) struct CountersArgs {
    /// Only the counters of this part of the program.
    #[arg(long, value_name = "ROOM")]
    room: Option<String>,
    /// Leave out counters that are zero.
    #[arg(long)]
    nonzero: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Run for CountersArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, &self))
    }
}

async fn show(socket: &Path, arguments: &CountersArgs) -> Result<ExitCode> {
    let request = v0::ListCountersRequest {};
    let counters = answer(client::connect(socket).await?.list_counters(request).await)?.counters;
    let wanted = counters.iter().filter(|counter| {
        arguments.room.as_ref().is_none_or(|room| *room == counter.room)
            && (counter.value != 0 || !arguments.nonzero)
    });
    let mut out = std::io::stdout().lock();
    if arguments.output.json {
        let mut array = JsonArray::new(&mut out);
        for counter in wanted {
            array.push(&json!({
                "room": counter.room, "name": counter.name, "value": counter.value, "help": counter.help,
            }))?;
        }
        array.end()?;
    } else {
        text(&mut out, wanted)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn text<'a>(out: &mut impl Write, counters: impl Iterator<Item = &'a v0::Counter>) -> Result<()> {
    let mut table = table::new(&["counter", "value", "meaning"]);
    for counter in counters {
        let value = counter.value.to_string();
        table.add_row([&format!("{}.{}", counter.room, counter.name), &value, &counter.help]);
    }
    if let Some(values) = table.column_mut(1) {
        values.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out, "{}", table.trim_fmt())?;
    Ok(())
}
