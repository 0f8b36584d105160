//! State that is shown to users.

use core::net::SocketAddr;

use signalbox_core::Time;

use super::Mapper;
use super::io::{Inside, MappingId};
use super::record::{Holder, Record, Stage};

/// Where a mapping is between its first request and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The path was asked.
    Asking,
    /// It works.
    Standing,
    /// The path lost it, and was asked again.
    Repairing,
}

/// A mapping, as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingView<'a> {
    /// Its identifier on the path.
    pub id: MappingId,
    /// Host, protocol and port.
    pub inside: Inside,
    /// PCP made it, otherwise NAT-PMP.
    pub by_pcp: bool,
    /// Where it is.
    pub state: State,
    /// The external place that the host was told; nothing while the path is asked.
    pub outside: Option<SocketAddr>,
    /// When it ends if it is not renewed; nothing while the path is asked.
    pub ends: Option<Time>,
    /// What it is for: text of a stranger, to be shown escaped.
    pub description: Option<&'a str>,
    /// Number of filters; 0: anybody may send.
    pub filters: usize,
}

impl Mapper {
    /// Number of mappings.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.mappings.len()
    }

    /// Whether there is no mapping.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All mappings, in no order.
    pub fn mappings(&self) -> impl Iterator<Item = MappingView<'_>> {
        self.mappings.iter().map(|(id, record)| MappingView::of(id, record))
    }

    /// Visits mappings from a place in the table on, while the visitor answers true. Returns the place where it stopped; `None`: there
    /// are no more. A walk looks at a bounded number of places.
    pub fn walk(&self, from: u32, mut visit: impl FnMut(MappingView<'_>) -> bool) -> Option<u32> {
        self.mappings.walk(from, |id, record| visit(MappingView::of(id, record)))
    }
}

impl<'a> MappingView<'a> {
    fn of(id: MappingId, record: &'a Record) -> Self {
        let told = record.told();
        Self {
            id,
            inside: record.inside,
            by_pcp: matches!(record.holder, Holder::Pcp(_)),
            state: match record.stage {
                Stage::Asking { .. } => State::Asking,
                Stage::Standing { .. } | Stage::Changing { .. } => State::Standing,
                Stage::Repairing { .. } => State::Repairing,
            },
            outside: told.map(|(place, _)| place),
            ends: told.map(|(_, ends)| ends),
            description: record.description.as_deref(),
            filters: record.filters.len(),
        }
    }
}
