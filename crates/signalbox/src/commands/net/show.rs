//! `signalbox net show`: what each node shows.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::ask::{Asked, faults, object, understood};
use crate::exit::Exit;
use crate::print::style::{Tone, paint};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The words of `signalbox show`, with its options.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    words: Vec<String>,
}

pub(super) async fn show(asked: &Asked, arguments: ShowArgs) -> Result<Exit> {
    let json = asked.json || arguments.words.iter().any(|word| word == "--json");
    let asked = &Asked { nodes: asked.nodes.clone(), json, ..*asked };
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    let answers = asked.show(&words, json).await?;
    understood(&answers)?;
    let mut out = std::io::stdout().lock();
    for answer in &answers {
        let Ok(text) = &answer.text else { continue };
        if json {
            for row in answer.rows() {
                object(&mut out, "net_row", json!({"node": answer.node, "row": row}))?;
            }
        } else {
            writeln!(out, "{}", paint(Tone::Heading, &format!("== {}", answer.node)))?;
            writeln!(out, "{}\n", text.trim_end())?;
        }
    }
    drop(out);
    Ok(Exit::yes_if(!asked.report(faults(&answers))?))
}
