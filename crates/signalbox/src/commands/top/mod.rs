//! `signalbox top`: the state of the node on one screen of a terminal, again and again. What is known and where the user is
//! ([`model`]) is apart from what is drawn ([`draw`]); this module joins both to the daemon ([`mod@ask`]) and the terminal ([`terminal`]).

mod ask;
mod draw;
mod entry;
mod list;
mod meter;
mod model;
mod terminal;
mod text;

use std::future::pending;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use signalbox_api::retry::{Pace, Waits, spread};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};
use tonic::transport::Channel;

use self::ask::ask;
use self::entry::Tab;
use self::model::{Answers, Model, Wish};
use self::terminal::{Input, Screen};
use super::Run;
use super::show::interval;
use crate::arguments::NodeArgs;
use crate::client::{self, block_on};
use crate::exit::{Exit, exit_status, usage};
use crate::print::now_unix_us;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    /// The time from an answer of the daemon to the next question.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,
    #[arg(long, hide = true)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

const HELP: &str = concat!(
    exit_status!("the user ended it, by q, Ctrl-C or a signal"),
    "EXAMPLES:\n",
    "  signalbox top\n",
    "  signalbox top --interval 500ms\n",
    "  signalbox top --socket /run/signalbox/r1.sock\n\n",
    "Links with what is reserved and used of them, the protocols with their sessions and messages a second, and a list: links,\n",
    "reservations, passages, sessions, neighbors or decisions (keys 1 to 6). Enter looks into one, / writes a filter, ? lists all\n",
    "keys. When the daemon restarts, it is asked again after 0.25 s to 2 s. For programs: `signalbox show VIEW --watch --json`.",
);

impl Run for TopArgs {
    fn run(self) -> Result<Exit> {
        if self.json || !terminal::is_there() {
            usage!(
                "`signalbox top` needs a terminal for its screen and its keys; for programs and files use `signalbox show VIEW --watch \
                 --json`, such as `signalbox show reservations --watch --json`"
            );
        }
        block_on(top(&self))
    }
}

/// What ends the command, or stops it for a while.
struct Signals {
    ends: [Signal; 4],
    stop: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let [interrupt, terminate, hangup, quit] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        Ok(Self {
            ends: [signal(interrupt)?, signal(terminate)?, signal(hangup)?, signal(quit)?],
            stop: signal(SignalKind::from_raw(nix::sys::signal::SIGTSTP as i32))?,
        })
    }

    /// Waits for a signal. Whether it is one that ends the command.
    async fn wait(&mut self) -> bool {
        let [interrupt, terminate, hangup, quit] = &mut self.ends;
        tokio::select! {
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
            _ = hangup.recv() => true,
            _ = quit.recv() => true,
            _ = self.stop.recv() => false,
        }
    }
}

/// A question that the daemon has not answered yet; then the connection, and the answers.
type Asking = Pin<Box<dyn Future<Output = Result<(Channel, Answers)>>>>;

/// Asks the daemon, by this connection or a new one.
async fn attempt(
    socket: &Path,
    channel: Option<Channel>,
    tab: Tab,
    start: Instant,
) -> Result<(Channel, Answers)> {
    let channel = match channel {
        Some(channel) => channel,
        None => client::channel(socket).await?,
    };
    let answers = ask(channel.clone(), tab, start).await?;
    Ok((channel, answers))
}

async fn top(arguments: &TopArgs) -> Result<Exit> {
    let (socket, every) = (&arguments.node.socket, arguments.interval);
    let start = Instant::now();
    let mut model = Model::new(every);
    // Without a daemon at the start the command ends as every other one does.
    let (first, answers) = attempt(socket, None, model.tab, start).await?;
    model.answered(answers);
    let mut channel = Some(first);
    let mut signals = Signals::new()?;
    let mut screen = Screen::enter()?;
    let mut inputs = terminal::inputs();
    let mut waits = Waits::new();
    let mut asking: Option<Asking> = None;
    let mut next = Instant::now() + every;
    loop {
        screen.draw(&mut model)?;
        let idle = asking.is_none();
        let answered = async {
            match &mut asking {
                Some(asking) => asking.await,
                None => pending().await,
            }
        };
        tokio::select! {
            input = inputs.recv() => {
                let Some(input) = input else { return Err(anyhow!("the terminal gives no keys")) };
                let wish = match input? {
                    Input::Key(key) => model.pressed(key),
                    Input::Resized => Wish::Nothing,
                };
                match wish {
                    Wish::Quit => return Ok(Exit::Yes),
                    Wish::Suspend => screen.suspend()?,
                    Wish::Ask => (asking, next) = (None, Instant::now()),
                    Wish::Nothing => {}
                }
            }
            ends = signals.wait() => {
                if ends {
                    return Ok(Exit::Yes);
                }
                screen.suspend()?;
            }
            result = answered => {
                asking = None;
                next = Instant::now() + every;
                match result {
                    Ok((open, answers)) => {
                        channel = Some(open);
                        waits.granted();
                        model.answered(answers);
                    }
                    Err(error) => {
                        channel = None;
                        let wait = waits.next(Pace::Soon);
                        model.lost(now_unix_us(), format!("{error:#}"), waits.attempts(), wait);
                        next = Instant::now() + spread(wait);
                    }
                }
            }
            () = sleep_until(next), if idle => {
                let (socket, channel, tab) = (socket.clone(), channel.clone(), model.tab);
                asking = Some(Box::pin(async move { attempt(&socket, channel, tab, start).await }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
