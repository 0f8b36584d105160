//! `signalbox completion`.

use anyhow::Result;
use clap::Args;
use clap_complete::Shell;

use super::Run;
use crate::elsewhere;
use crate::exit::{Exit, exit_status};

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

const HELP: &str = concat!(
    exit_status!("printed"),
    "EXAMPLES:\n",
    "  signalbox completion bash > /etc/bash_completion.d/signalbox\n",
    "  source <(signalbox completion zsh)",
);

impl Run for CompletionArgs {
    fn run(self) -> Result<Exit> {
        // Into memory first: the generator panics if it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut elsewhere::all_words(), "signalbox", &mut script);
        std::io::Write::write_all(&mut std::io::stdout(), &script)?;
        Ok(Exit::Yes)
    }
}
