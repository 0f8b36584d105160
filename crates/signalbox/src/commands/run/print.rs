//! What is said of the flows.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use signalbox_api::v1;
use signalbox_api::v1::reserve_response::Event;

use super::flow::Flow;
use crate::arguments::Signaling;
use crate::print::style::without_terminal;
use crate::print::{flow, now_unix_us, path};

/// Prints events. The program goes on when nobody reads them any more.
pub(super) struct Printer {
    out: Option<Box<dyn Write>>,
    json: bool,
    /// What was noticed already. It is said once.
    noticed: Option<String>,
}

/// A line that no message of the API describes.
#[derive(Debug, Serialize)]
struct Line<T> {
    r#type: &'static str,
    time_unix_us: u64,
    #[serde(flatten)]
    rest: T,
}

#[derive(Debug, Serialize)]
struct Running<'a> {
    pid: u32,
    cgroup: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Unreserved<'a> {
    flow: serde_json::Value,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
struct Notice<'a> {
    message: &'a str,
}

#[derive(Debug, Serialize)]
struct Ended {
    status: u8,
    flows: u64,
}

impl Printer {
    /// To a file, or to standard error.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn new(file: Option<&Path>, json: bool, quiet: bool) -> Result<Self> {
        let out: Box<dyn Write> = match file {
            Some(file) => {
                let cannot = || format!("cannot write {}", file.display());
                Box::new(File::create(file).with_context(cannot)?)
            }
            None => Box::new(io::stderr()),
        };
        if file.is_some() || !io::stderr().is_terminal() {
            without_terminal();
        }
        Ok(Self { out: Some(out).filter(|_| !quiet), json, noticed: None })
    }

    /// The program runs. `lacks`: why it has no cgroup.
    pub(super) fn running(&mut self, pid: u32, lacks: Option<&str>) {
        if self.json {
            self.line("running", Running { pid, cgroup: lacks.is_none(), reason: lacks });
        } else if let Some(why) = lacks {
            self.text(
                None,
                &format!(
                    "process {pid} and its descendants are followed, without a cgroup of their own: {why}"
                ),
            );
        }
    }

    /// Something that the user can mend. The same text is said once.
    pub(super) fn notice(&mut self, message: &str) {
        if self.noticed.as_deref() == Some(message) {
            return;
        }
        self.noticed = Some(message.to_owned());
        if self.json {
            self.line("notice", Notice { message });
        } else {
            self.text(None, message);
        }
    }

    /// A flow has no reservation.
    pub(super) fn unreserved(&mut self, flow: &Flow, reason: &str) {
        if self.json {
            let flow = signalbox_json::value(&flow.spec()).unwrap_or_default();
            self.line("unreserved", Unreserved { flow, reason });
        } else {
            self.text(Some(flow), &format!("no reservation: {reason}"));
        }
    }

    /// An event of a reservation.
    pub(super) fn event(&mut self, flow: &Flow, response: &v1::ReserveResponse, signaling: Signaling) {
        let Some(event) = &response.event else { return };
        if self.json {
            if let Some(line) = json(flow, response) {
                self.put(&format!("{line}\n"));
            }
            return;
        }
        let mut text = Vec::new();
        // Memory takes all that is written.
        let _ = match event {
            Event::Started(_) if signaling == Signaling::Rsvp => {
                writeln!(text, "announced; waiting for a receiver to reserve")
            }
            // The answer follows at once.
            Event::Started(_) => Ok(()),
            Event::Granted(grant) if grant.rerouted => {
                path::grant(&mut text, "the path changed; granted", grant)
            }
            Event::Granted(grant) => path::grant(&mut text, "granted", grant),
            Event::Failed(failure) => path::failure(&mut text, "refused", failure),
            Event::Lost(failure) => path::failure(&mut text, "lost", failure),
            Event::Interrupted(failure) => path::failure(&mut text, "interrupted", failure),
            Event::ChangeRefused(failure) => path::failure(&mut text, "the change is refused", failure),
            Event::Released(_) => writeln!(text, "released"),
            Event::Retrying(retrying) => path::retrying(&mut text, retrying),
        };
        self.text(Some(flow), &String::from_utf8_lossy(&text));
    }

    /// The program has ended, and all is released.
    pub(super) fn ended(&mut self, status: u8, flows: u64) {
        if self.json {
            self.line("ended", Ended { status, flows });
        }
    }

    fn line(&mut self, kind: &'static str, rest: impl Serialize) {
        let line = Line { r#type: kind, time_unix_us: now_unix_us(), rest };
        self.put(&format!("{}\n", serde_json::to_string(&line).unwrap_or_default()));
    }

    fn text(&mut self, of: Option<&Flow>, text: &str) {
        let of = of.map(|of| format!("{}: ", flow(&of.spec()))).unwrap_or_default();
        let lines: String = text.lines().map(|line| format!("signalbox: {of}{line}\n")).collect();
        self.put(&lines);
    }

    fn put(&mut self, text: &str) {
        if let Some(out) = &mut self.out
            && out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err()
        {
            self.out = None;
        }
    }
}

/// The line of an event, with the flow: the event of the start has it already, with the address that the daemon found.
fn json(flow: &Flow, response: &v1::ReserveResponse) -> Option<String> {
    let line = signalbox_json::event(response).ok()??;
    if matches!(response.event, Some(Event::Started(_))) {
        return Some(line);
    }
    let flow = signalbox_json::value(&flow.spec()).ok()?;
    Some(format!("{},\"flow\":{flow}}}", line.strip_suffix('}')?))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(octets)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn printed(json: bool, print: impl FnOnce(&mut Printer)) -> String {
        let page = Page::default();
        print(&mut Printer { out: Some(Box::new(page.clone())), json, noticed: None });
        String::from_utf8(page.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn each_line_names_the_flow() {
        let flow = Flow { source: Some("10.0.0.1".parse().unwrap()), ..Flow::example() };
        let response = |event| v1::ReserveResponse { time_unix_us: 7, event: Some(event) };
        let released = response(Event::Released(v1::ReserveReleased { confirmed: true }));
        let text = printed(false, |out| out.event(&flow, &released, Signaling::Qos));
        assert_eq!(text, "signalbox: 10.0.0.1 port 9 > 127.0.0.1 port 9 proto 17: released\n");
        let line = printed(true, |out| out.event(&flow, &released, Signaling::Qos));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["type"], &line["confirmed"]), (&"released".into(), &true.into()));
        assert_eq!((&line["flow"]["source"], &line["flow"]["source_port"]), (&"10.0.0.1".into(), &9.into()));
        // The event of the start has the flow once, as the daemon completed it.
        let flow_of_daemon = v1::FlowSpec { source: Some("10.0.0.2".into()), ..flow.spec() };
        let started = v1::ReserveStarted { flow: Some(flow_of_daemon), ..v1::ReserveStarted::default() };
        let line = printed(true, |out| out.event(&flow, &response(Event::Started(started)), Signaling::Qos));
        assert_eq!(line.matches("\"flow\"").count(), 1, "{line}");
        assert!(line.contains("10.0.0.2"), "{line}");
    }

    #[test]
    fn lines_of_the_command_itself_have_a_type_and_a_time() {
        let flow = Flow::example();
        let text = printed(true, |out| {
            out.running(4, Some("read-only"));
            out.unreserved(&flow, "too many");
            out.notice("look");
            out.notice("look");
            out.ended(3, 2);
        });
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["running", "unreserved", "notice", "ended"]);
        assert!(lines.iter().all(|line| line["time_unix_us"].as_u64() > Some(0)));
        assert_eq!((&lines[0]["cgroup"], &lines[0]["reason"]), (&false.into(), &"read-only".into()));
        assert_eq!((&lines[1]["flow"]["ip_protocol"], &lines[3]["status"]), (&17.into(), &3.into()));
    }
}
