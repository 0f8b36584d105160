//! `signalbox show … --watch`: a view that is shown again and again, on the same screen or as JSON.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use signalbox_units::Span;

use crate::arguments::values::time;
use crate::exit::{self, Exit, NoDaemon, Refusal};
use crate::print::{json_line, now_unix_us, time_of_day};

/// Goes to the first line, and clears the screen behind it: a line that stays the same does not flicker.
const FROM_THE_TOP: &str = "\x1b[H\x1b[J";
/// The daemon also has other things to do.
const SHORTEST: Duration = Duration::from_millis(100);

/// Parses the time from one view to the next.
pub(in crate::commands) fn interval(text: &str) -> Result<Duration, String> {
    match time(text)? {
        interval if interval < SHORTEST => Err("use a time of at least 100ms".into()),
        interval => Ok(interval),
    }
}

/// What stands before the rows of a view in JSON.
#[derive(Debug, Serialize)]
struct ViewLine {
    r#type: &'static str,
    time_unix_us: u64,
}

/// Shows it at once and after each interval, until the command is to end. A daemon that is away, after the first view, is waited for.
/// `json`: each view is lines of JSON, and the daemon's absence is an object on standard error.
pub(super) async fn repeat(
    out: &mut impl Write,
    every: Duration,
    json: bool,
    mut ended: impl AsyncFnMut(),
    mut show: impl AsyncFnMut() -> Result<Exit>,
) -> Result<Exit> {
    let mut shown = false;
    loop {
        let screen = if !json && std::io::stdout().is_terminal() { FROM_THE_TOP } else { "" };
        let time_unix_us = now_unix_us();
        if json {
            json_line(out, &ViewLine { r#type: "view", time_unix_us })?;
        } else {
            let now = time_of_day(time_unix_us);
            writeln!(out, "{screen}{now}, again every {}, until Ctrl-C\n", Span(every))?;
        }
        out.flush()?;
        let result = tokio::select! {
            result = show() => result,
            () = ended() => return Ok(Exit::Yes),
        };
        match result {
            Ok(_) => shown = true,
            Err(error) if shown && passes(&error) && json => _ = exit::report(&error, true),
            Err(error) if shown && passes(&error) => writeln!(out, "{error:#}")?,
            Err(error) => return Err(error),
        }
        if screen.is_empty() && !json {
            writeln!(out)?;
        }
        out.flush()?;
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = ended() => return Ok(Exit::Yes),
        }
    }
}

/// Whether the next view may succeed. The end of who reads the output does not pass.
fn passes(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NoDaemon>() || cause.is::<Refusal>())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn an_interval_is_no_shorter_than_the_daemon_likes() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert!(interval("1ms").is_err_and(|error| error.contains("at least 100ms")));
        assert!(interval("5").is_err());
    }

    /// A daemon that restarts does not end the command. Ctrl-C does, with success, also while a view waits for the daemon.
    #[tokio::test]
    async fn a_view_is_shown_until_the_command_is_to_end() {
        let end = Notify::new();
        let mut views = 0;
        let mut out = Vec::new();
        let show = async || {
            views += 1;
            match views {
                2 => Err(NoDaemon("it is away".into()).into()),
                4 => {
                    end.notify_one();
                    pending().await
                }
                _ => Ok(Exit::Yes),
            }
        };
        let result =
            repeat(&mut out, Duration::from_millis(1), false, async || end.notified().await, show).await;
        assert!(matches!(result, Ok(Exit::Yes)));
        let text = String::from_utf8(out).unwrap();
        assert_eq!(views, 4);
        assert_eq!(text.matches("again every 1ms, until Ctrl-C\n").count(), 4, "{text}");
        assert!(text.contains("it is away\n"), "{text}");
    }

    /// The first view fails as it does without `--watch`. What is no matter of the daemon ends it at any time.
    #[tokio::test]
    async fn without_a_first_view_or_a_reader_the_command_ends() {
        let every = Duration::from_millis(1);
        let away = async || Err(NoDaemon("no daemon".into()).into());
        let result = repeat(&mut Vec::new(), every, false, pending, away).await;
        assert!(result.unwrap_err().to_string().contains("no daemon"));
        let mut views = 0;
        let closed = async || {
            views += 1;
            if views == 1 {
                Ok(Exit::Yes)
            } else {
                Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into())
            }
        };
        assert!(repeat(&mut Vec::new(), every, false, pending, closed).await.is_err());
    }

    /// Programs find the beginning of each view, and nothing between its rows.
    #[tokio::test]
    async fn views_in_json_have_a_line_before_them_and_no_text() {
        let end = Notify::new();
        let mut views = 0;
        let mut out = Vec::new();
        let show = async || {
            views += 1;
            match views {
                1 => Ok(Exit::Yes),
                2 => Err(NoDaemon("it is away".into()).into()),
                _ => {
                    end.notify_one();
                    pending().await
                }
            }
        };
        let every = Duration::from_millis(1);
        let result = repeat(&mut out, every, true, async || end.notified().await, show).await;
        assert!(matches!(result, Ok(Exit::Yes)));
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines.iter().all(|line| line["type"] == "view" && line["time_unix_us"].is_u64()), "{text}");
    }
}
