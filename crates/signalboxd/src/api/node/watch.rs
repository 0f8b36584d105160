//! The call `WatchEvents`.

use signalbox_api::v1;
use signalbox_api::v1::watch_events_response::Event;
use signalbox_core::IfIndex;
use signalbox_show::gist as show;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::interfaces;
use crate::api::errors::FieldError;
use crate::api::pages::ROWS;
use crate::api::{held, types};
use crate::driver::{QUEUE, Watched};
use crate::requests::{LoopHandle, LoopRequest, Replies};

/// Which events a client asked for; a condition that is empty always holds.
#[derive(Debug)]
struct Filter {
    protocols: Vec<i32>,
    kinds: Vec<i32>,
}

impl Filter {
    fn matches(&self, event: &Event) -> bool {
        let (kind, protocol) = match event {
            Event::Synced(_) => return true,
            Event::ReservationChanged(changed) => {
                (v1::WatchKind::Reservations, changed.reservation.as_ref().map(|row| row.protocol))
            }
            // The row is gone, and with it its protocol.
            Event::ReservationEnded(_) => (v1::WatchKind::Reservations, None),
            Event::InterfaceChanged(_) | Event::InterfaceRemoved(_) => (v1::WatchKind::Interfaces, None),
            Event::Decided(decided) => {
                (v1::WatchKind::Decisions, decided.decision.as_ref().map(|row| row.protocol))
            }
            Event::SessionOpened(opened) => (v1::WatchKind::Sessions, Some(opened.protocol)),
            Event::SessionClosed(closed) => (v1::WatchKind::Sessions, Some(closed.protocol)),
            Event::SessionChanged(changed) => (v1::WatchKind::Sessions, Some(changed.protocol)),
            Event::PeerAppeared(_) | Event::PeerRemoved(_) => {
                (v1::WatchKind::Peers, Some(v1::Protocol::Gist.into()))
            }
            Event::AssociationChanged(_) | Event::AssociationRemoved(_) => {
                (v1::WatchKind::Associations, Some(v1::Protocol::Gist.into()))
            }
        };
        (self.kinds.is_empty() || self.kinds.contains(&kind.into()))
            && protocol.is_none_or(|one| self.protocols.is_empty() || self.protocols.contains(&one))
    }
}

/// Begins to watch.
///
/// # Errors
/// The number of a kind is unknown, or the event loop has ended.
pub(super) async fn watch(
    handle: &LoopHandle,
    request: v1::WatchEventsRequest,
) -> Result<Replies<Watched>, Status> {
    let v1::WatchEventsRequest { protocols, kinds, initial_state } = request;
    if kinds
        .iter()
        .any(|kind| v1::WatchKind::try_from(*kind).unwrap_or_default() == v1::WatchKind::Unspecified)
    {
        return Err(
            FieldError::new("kinds", "a WatchKind other than unspecified; leave it empty for all").into()
        );
    }
    let filter = Filter { protocols, kinds };
    let (sender, changes) = mpsc::channel(QUEUE);
    // From here on no change is missed; what changes while the state is listed comes after it.
    handle.send(LoopRequest::Watch(sender)).await?;
    let (out, stream) = mpsc::channel(1);
    let handle = handle.clone();
    tokio::spawn(async move {
        let listed = if initial_state { state(&handle, &filter, &out).await } else { Ok(()) };
        match listed {
            Ok(()) => follow(&filter, changes, &out).await,
            Err(Some(status)) => {
                // A client that is gone needs no answer.
                let _ = out.send(Err(status)).await;
            }
            Err(None) => {}
        }
    });
    Ok(Box::pin(ReceiverStream::new(stream)))
}

type Out = mpsc::Sender<Result<Watched, Status>>;

/// Sends what stands. An error without a status: the client is gone.
async fn state(handle: &LoopHandle, filter: &Filter, out: &Out) -> Result<(), Option<Status>> {
    let mut from = Some(IfIndex::NONE);
    while let Some(start) = from {
        let (rows, next) = handle.query(move |view| interfaces(view, start, None)).await?;
        for row in rows {
            let event = Event::InterfaceChanged(v1::InterfaceChanged { interface: Some(row) });
            send(filter, out, event).await?;
        }
        from = next;
    }
    let mut from = Some(0);
    while let Some(start) = from {
        let page = handle.query(move |view| {
            let mut rows = Vec::new();
            let next = view.node.resources().walk(start, |row| {
                rows.push(held::row(view.node, &row));
                rows.len() < ROWS
            });
            (rows, next)
        });
        let (rows, next) = page.await?;
        for row in rows {
            let event = Event::ReservationChanged(v1::ReservationChanged { reservation: Some(row) });
            send(filter, out, event).await?;
        }
        from = next;
    }
    gist_state(handle, filter, out).await
}

/// Sends the peers and associations of GIST.
async fn gist_state(handle: &LoopHandle, filter: &Filter, out: &Out) -> Result<(), Option<Status>> {
    let mut from = Some(0);
    while let Some(start) = from {
        let page = handle.query(move |view| {
            let mut rows = Vec::new();
            let next = view.node.gist().and_then(|gist| {
                gist.walk_peers(start, |row| {
                    rows.push(show::peer(&row, view.kernel.interfaces()));
                    rows.len() < ROWS
                })
            });
            (rows, next)
        });
        let (rows, next) = page.await?;
        for row in rows {
            send(filter, out, Event::PeerAppeared(v1::PeerAppeared { peer: Some(row) })).await?;
        }
        from = next;
    }
    let mut from = Some(0);
    while let Some(start) = from {
        let page = handle.query(move |view| {
            let mut rows = Vec::new();
            let next = view.node.gist().and_then(|gist| {
                gist.walk_associations(start, |row| {
                    rows.push(show::association(&row));
                    rows.len() < ROWS
                })
            });
            (rows, next)
        });
        let (rows, next) = page.await?;
        for row in rows {
            let event = Event::AssociationChanged(v1::AssociationChanged { association: Some(row) });
            send(filter, out, event).await?;
        }
        from = next;
    }
    Ok(())
}

async fn send(filter: &Filter, out: &Out, event: Event) -> Result<(), Option<Status>> {
    if !filter.matches(&event) {
        return Ok(());
    }
    let event = Watched { time_unix_us: types::unix_us(), lost: 0, event: Some(event) };
    out.send(Ok(event)).await.map_err(|_| None)
}

/// Sends changes until the client or the event loop ends.
async fn follow(filter: &Filter, mut changes: mpsc::Receiver<Watched>, out: &Out) {
    if send(filter, out, Event::Synced(v1::Synced {})).await.is_err() {
        return;
    }
    // Losses before an event that this client did not ask for are reported with the next that it asked for.
    let mut lost = 0;
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = out.closed() => return,
        };
        let Some(mut change) = change else { return };
        lost += change.lost;
        if !change.event.as_ref().is_some_and(|event| filter.matches(event)) {
            continue;
        }
        change.lost = std::mem::take(&mut lost);
        if out.send(Ok(change)).await.is_err() {
            return;
        }
    }
}
