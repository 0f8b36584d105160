//! The output for events of a reservation, as text.

use std::io::{self, Write};

use signalbox_api::v1::reserve_response::Event;

use super::ReserveArgs;
use crate::arguments::{Signaling, microseconds};
use crate::print::{duration, flow, hex, path};

/// Prints an event.
pub(super) fn text(out: &mut impl Write, event: &Event, arguments: &ReserveArgs) -> io::Result<()> {
    match event {
        Event::Started(started) => {
            write!(out, "reserve {}", started.flow.as_ref().map(flow).unwrap_or_default())?;
            if let Some(session) = &started.session_id {
                write!(out, ", session {}", hex(session))?;
            }
            writeln!(out)?;
            match arguments.signaling {
                Signaling::Qos | Signaling::Boomerang | Signaling::Casp => Ok(()),
                Signaling::Rsvp => writeln!(out, "announced; waiting for a receiver to reserve"),
            }
        }
        Event::Granted(grant) if grant.rerouted => path::grant(out, "the path changed; granted", grant),
        Event::Granted(grant) => {
            path::grant(out, "granted", grant)?;
            if arguments.is_for_group() {
                writeln!(out, "by the link of this host; each branch of the group decides for itself")?;
            }
            match arguments.lifetime.hold {
                Some(hold) if arguments.start_in.is_some() => {
                    let hold = duration(microseconds(hold));
                    writeln!(out, "held from the start on for {hold}; Ctrl-C releases it earlier")
                }
                Some(hold) => {
                    writeln!(out, "held for {}; Ctrl-C releases it earlier", duration(microseconds(hold)))
                }
                None => writeln!(out, "held until Ctrl-C"),
            }
        }
        Event::Failed(failure) => path::failure(out, "refused", failure),
        Event::Lost(failure) => path::failure(out, "lost", failure),
        Event::Interrupted(failure) => path::failure(out, "interrupted", failure),
        Event::ChangeRefused(failure) => path::failure(out, "the change is refused", failure),
        Event::Released(released) if released.confirmed || !arguments.confirms() => {
            writeln!(out, "released")
        }
        Event::Released(_) => writeln!(out, "released here; the far end has not confirmed it"),
        Event::Retrying(retrying) => path::retrying(out, retrying),
    }
}
