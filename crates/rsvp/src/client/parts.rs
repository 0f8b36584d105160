//! Parts of a reply, put together by where they belong (RFC 2745 §6, item 4).

use std::collections::BTreeMap;

use super::{Entry, Node};
use crate::wire::{Class, Diagnostic, Message};

/// What came of a reply so far.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Octets of DIAG_RESPONSEs by their offset in the whole reply, with the nodes.
    parts: BTreeMap<u16, (usize, Vec<Node>)>,
    /// Where the part without MF ends.
    end: Option<usize>,
}

impl Parts {
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.end = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes a part. One that comes twice, because the request was repeated, counts as it came last.
    pub(super) fn add(&mut self, told: &Diagnostic, message: &Message<'_>) {
        let objects = message.objects().filter(|object| object.kind.class == Class::DIAG_RESPONSE);
        let nodes: Vec<Node> = objects.map(|object| Node(object.octets.into())).collect();
        let octets = nodes.iter().map(|node| node.0.len()).sum();
        if !told.more {
            self.end = Some(usize::from(told.offset) + octets);
        }
        self.parts.insert(told.offset, (octets, nodes));
    }

    /// All nodes, if no part is missing.
    pub(super) fn whole(&self) -> Option<Vec<Node>> {
        let end = self.end?;
        let mut at = 0;
        while at < end {
            let (octets, _) = self.parts.get(&u16::try_from(at).ok()?).filter(|(octets, _)| *octets > 0)?;
            at += octets;
        }
        let fitting = self.parts.iter().filter(|(offset, _)| usize::from(**offset) < end);
        (at == end).then(|| fitting.flat_map(|(_, (_, nodes))| nodes.iter().cloned()).collect())
    }

    /// What there is, with a mark where something is missing.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut at = 0;
        for (offset, (octets, nodes)) in &self.parts {
            if usize::from(*offset) > at {
                entries.push(Entry::Lost);
            }
            at = at.max(usize::from(*offset) + octets);
            entries.extend(nodes.iter().cloned().map(Entry::Node));
        }
        if self.end != Some(at) {
            entries.push(Entry::Lost);
        }
        entries
    }
}
