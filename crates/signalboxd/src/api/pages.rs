//! Lists in pages.
//!
//! A list is a stream of responses, each with up to [`ROWS`] rows and the place where the list goes on. Each response is
//! one query to the event loop, which looks at a bounded number of places in a table: a long list does not delay messages.
//! A place in a table stays valid whatever is inserted or removed, so that no row is skipped that stands all the time.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use signalbox_core::IfIndex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::errors::FieldError;
use crate::requests::{LoopHandle, Replies};
use crate::view::View;

/// Most rows of one response.
pub(crate) const ROWS: usize = 256;

/// A response of a list.
pub(crate) trait Page: Send + 'static {
    /// What is listed.
    type Row: Send + 'static;
    /// Distinguishes its tokens from those of other lists.
    const TABLE: u8;

    /// A response with these rows, and the token of what follows; empty after the last row.
    fn new(rows: Vec<Self::Row>, next_page_token: Vec<u8>) -> Self;
}

/// Implements [`Page`] for a response with a field of rows and `next_page_token`.
macro_rules! page {
    ($table:literal: $response:ty, $rows:ident: $row:ty) => {
        impl crate::api::pages::Page for $response {
            type Row = $row;
            const TABLE: u8 = $table;

            fn new($rows: Vec<$row>, next_page_token: Vec<u8>) -> Self {
                Self { $rows, next_page_token }
            }
        }
    };
}
pub(crate) use page;

/// A place in a table.
pub(crate) trait Cursor: Copy + Send + 'static {
    /// The beginning of the table.
    const START: Self;

    /// The place as octets.
    fn write(&self, to: &mut Vec<u8>);

    /// The place of these octets.
    fn read(octets: &[u8]) -> Option<Self>;
}

/// A slot of a slab.
impl Cursor for u32 {
    const START: Self = 0;

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.to_be_bytes());
    }

    fn read(octets: &[u8]) -> Option<Self> {
        octets.try_into().ok().map(Self::from_be_bytes)
    }
}

/// The row after an address at an interface.
impl Cursor for Option<(IpAddr, IfIndex)> {
    const START: Self = None;

    fn write(&self, to: &mut Vec<u8>) {
        let Some((address, ifindex)) = self else { return };
        to.extend(ifindex.0.to_be_bytes());
        match address {
            IpAddr::V4(v4) => to.extend(v4.octets()),
            IpAddr::V6(v6) => to.extend(v6.octets()),
        }
    }

    fn read(octets: &[u8]) -> Option<Self> {
        let (ifindex, address) = octets.split_first_chunk()?;
        let address = match *address {
            [a, b, c, d] => IpAddr::from([a, b, c, d]),
            _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)),
        };
        Some(Some((address, IfIndex(u32::from_be_bytes(*ifindex)))))
    }
}

/// One portion of a table: the rows, and the place where the next portion begins; `None` after the last.
pub(crate) type Portion<R, C> = (Vec<R>, Option<C>);

/// Makes a portion from a walk through a table, of `most` rows at most. `walk` gives each row to its argument, or `None` for a
/// row that the client did not ask for, and goes on while the answer is true. It returns the place where it stopped.
pub(crate) fn walked<R, C>(
    most: usize,
    walk: impl FnOnce(&mut dyn FnMut(Option<R>) -> bool) -> Option<C>,
) -> Portion<R, C> {
    let mut rows = Vec::new();
    let next = walk(&mut |row| {
        rows.extend(row);
        rows.len() < most
    });
    (rows, next)
}

/// The part of a list that a client asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<'a> {
    /// Most rows; `None`: all.
    pub(crate) limit: Option<u32>,
    /// Where to begin; empty: at the first row.
    pub(crate) page_token: &'a [u8],
}

/// Streams a table. `portion` gives the rows from a place on, as many as its last argument at most; it looks at a bounded
/// number of places.
///
/// # Errors
/// The token does not belong to this list.
pub(crate) fn pages<P: Page, C: Cursor>(
    handle: &LoopHandle,
    range: Range<'_>,
    portion: impl Fn(&mut View<'_>, C, usize) -> Portion<P::Row, C> + Send + Sync + 'static,
) -> Result<Replies<P>, Status> {
    let mut at = Some(match range.page_token.split_first() {
        None => C::START,
        Some((table, place)) => Some(place)
            .filter(|_| *table == P::TABLE)
            .and_then(C::read)
            .ok_or_else(|| FieldError::new("page_token", "a `next_page_token` of this list, or empty"))?,
    });
    let mut left = range.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let handle = handle.clone();
    let portion = Arc::new(portion);
    let (pages, stream) = mpsc::channel(1);
    tokio::spawn(async move {
        // An answer without rows is sent only at the end, so that a client finds an empty token in the last one.
        while let Some(start) = at {
            let most = left.map_or(ROWS, |left| left.min(ROWS));
            let portion = Arc::clone(&portion);
            let page = match handle.query(move |view| portion(view, start, most)).await {
                Ok((rows, next)) => {
                    at = next;
                    left = left.map(|left| left.saturating_sub(rows.len()));
                    if rows.is_empty() && next.is_some() && left != Some(0) {
                        continue;
                    }
                    Ok(P::new(rows, next.map(|next| token::<P, C>(next)).unwrap_or_default()))
                }
                Err(status) => Err(status),
            };
            // A client that is gone needs no answer.
            let ends = page.is_err() || left == Some(0);
            if pages.send(page).await.is_err() || ends {
                return;
            }
        }
    });
    Ok(Box::pin(ReceiverStream::new(stream)))
}

fn token<P: Page, C: Cursor>(place: C) -> Vec<u8> {
    let mut token = vec![P::TABLE];
    place.write(&mut token);
    token
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use signalbox_api::rsvp::v1::{ListNeighborsResponse, Neighbor};
    use tokio_stream::StreamExt;

    use super::*;
    use crate::requests::LoopRequest;
    use crate::rig::{ALL, Rig};

    /// A table of 1000 places, of which those are rows that 10 divides. A portion looks at 100 places.
    fn portion(_: &mut View<'_>, from: u32, most: usize) -> Portion<Neighbor, u32> {
        let mut rows = Vec::new();
        for at in from..1000.min(from + 100) {
            if at % 10 == 0 {
                rows.push(Neighbor { message_ids: at, ..Neighbor::default() });
            }
            if rows.len() == most {
                return (rows, (at < 999).then_some(at + 1));
            }
        }
        (rows, (from + 100 < 1000).then_some(from + 100))
    }

    /// The rows of a list, and its last token.
    async fn list(rig: &mut Rig, limit: Option<u32>, page_token: &[u8]) -> (Vec<u32>, Vec<u8>) {
        let range = Range { limit, page_token };
        let mut pages = pages::<ListNeighborsResponse, u32>(&rig.handle, range, portion).unwrap();
        let (mut rows, mut token) = (Vec::new(), Vec::new());
        loop {
            let page = tokio::select! {
                page = pages.next() => page,
                Some(LoopRequest::Query(query)) = rig.requests.recv() => {
                    rig.run(query);
                    continue;
                }
            };
            let Some(page) = page else { return (rows, token) };
            let page = page.unwrap();
            rows.extend(page.neighbors.iter().map(|row| row.message_ids));
            token = page.next_page_token;
        }
    }

    #[tokio::test]
    async fn a_list_goes_on_where_it_was_cut() {
        let mut rig = Rig::new(ALL).await;
        let all: Vec<u32> = (0..1000).step_by(10).collect();
        assert_eq!(list(&mut rig, None, &[]).await, (all.clone(), Vec::new()));
        let (mut rows, mut token) = (Vec::new(), Vec::new());
        loop {
            let (more, next) = list(&mut rig, Some(7), &token).await;
            assert!(more.len() <= 7);
            rows.extend(more);
            token = next;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(rows, all);
        assert!(rig.woken.load(Ordering::SeqCst) >= 10, "each query wakes the loop");
    }

    #[tokio::test]
    async fn another_lists_token_is_refused() {
        let rig = Rig::new(ALL).await;
        for page_token in [&b"\0\0\0\0\0"[..], b"x", &[ListNeighborsResponse::TABLE, 1]] {
            let range = Range { limit: None, page_token };
            let refused = pages::<ListNeighborsResponse, u32>(&rig.handle, range, portion);
            assert!(refused.is_err_and(|status| status.message().starts_with("page_token")));
        }
    }

    #[test]
    fn a_place_survives_being_a_token() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            let place = Some((address.parse().unwrap(), IfIndex(7)));
            let mut octets = Vec::new();
            place.write(&mut octets);
            assert_eq!(<Option<(IpAddr, IfIndex)> as Cursor>::read(&octets), Some(place));
        }
    }
}
