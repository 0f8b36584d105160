//! Reassembly of reply fragments by their offsets (RFC 2745 §6, item 4).

use std::collections::BTreeMap;

use super::{Entry, Node};
use crate::wire::{Class, Diagnostic, Message};

/// The fragments of a reply so far.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Length and nodes of each fragment, by its offset in the whole reply.
    parts: BTreeMap<u16, (usize, Vec<Node>)>,
    /// End of the fragment without MF.
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

    /// Adds a fragment. A repeated fragment replaces the former one.
    pub(super) fn add(&mut self, diagnostic: &Diagnostic, message: &Message<'_>) {
        let objects = message.objects().filter(|object| object.kind.class == Class::DIAG_RESPONSE);
        let nodes: Vec<Node> = objects.map(|object| Node(object.octets.into())).collect();
        let octets = nodes.iter().map(|node| node.0.len()).sum();
        if !diagnostic.more {
            self.end = Some(usize::from(diagnostic.offset) + octets);
        }
        self.parts.insert(diagnostic.offset, (octets, nodes));
    }

    /// All nodes, if no fragment is missing.
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

    /// The entries so far, with a mark at each gap.
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
