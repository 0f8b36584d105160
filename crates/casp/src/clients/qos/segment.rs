//! Segments of the path with LOCAL objects (section 6 of the draft): a node at the border of a network adds them and takes them
//! out, and the kernel marks the packets of the flow with the DSCP that the network has for it.

use core::net::IpAddr;
use std::collections::BTreeSet;

use signalbox_core::node::{Interface, Prefix};
use signalbox_core::{IfIndex, Key, SessionId, invariant};
use signalbox_wire::Writer;

use super::QosClient;
use super::node::Job;
use super::record::{Places, Record};
use crate::wire::qos::{Local, QosClass, QosMessage, QosType};
use crate::wire::{Class, Object, Objects, write};

/// Most segments of a node: each message is compared with all.
const SEGMENTS: usize = 16;
/// Type of a LOCAL object that contains a DSCP.
const DSCP: u8 = 2;
/// Identification of the DSCP that this suite adds; a segment has one.
const ITEM: u16 = 1;

/// A segment of the path that this node belongs to, or whose border it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Segment {
    /// LOCAL objects with this scope are of the segment. A segment inside of another one has the higher number.
    pub scope: u8,
    /// Names of the interfaces that lead into the segment.
    pub interfaces: Vec<String>,
    /// Addresses of the nodes of the segment that are neighbors of this one.
    pub nodes: Vec<Prefix>,
    /// DSCP, 0 to 63, that the node adds to requests that enter the segment; `None`: it adds nothing, unless `map` has a value.
    pub dscp: Option<u8>,
    /// DSCPs of the segment, by the DSCP of the segment that a request comes from. Both are 0 to 63.
    pub map: Vec<(u8, u8)>,
    /// DSCP, 0 to 63, of packets that leave the segment.
    pub outside: u8,
}

/// What is wrong with the segments of a node; `None`: nothing.
pub(super) fn problem(segments: &[Segment]) -> Option<&'static str> {
    let scopes: BTreeSet<u8> = segments.iter().map(|segment| segment.scope).collect();
    let all = |segment: &Segment| {
        let mapped: Vec<u8> = segment.map.iter().flat_map(|(from, to)| [*from, *to]).collect();
        mapped.into_iter().chain(segment.dscp).chain([segment.outside]).all(|dscp| dscp <= 63)
    };
    if segments.len() > SEGMENTS {
        Some("more than 16 segments")
    } else if scopes.len() < segments.len() {
        Some("two segments with one scope")
    } else if !segments.iter().all(all) {
        Some("a DSCP over 63")
    } else {
        None
    }
}

/// What LOCAL objects say of the flow at a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Crossing {
    /// The objects that go on with the message, those of other classes included.
    pub(super) objects: Vec<u8>,
    /// Scope and DSCP of each segment that the message goes into.
    pub(super) local: Box<[(u8, u8)]>,
    /// DSCP of the packets that leave this node, for each direction of the session's data; `None`: they keep theirs.
    pub(super) marks: Marks,
}

/// The DSCPs that packets get, for the directions of [`Record::data`].
pub(super) type Marks = [Option<u8>; 2];

/// The way of a message through this node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The node that it comes from, and whether that one is authenticated; `None`: this node makes it.
    pub(super) from: Option<(IpAddr, bool)>,
    /// The message travels against the data.
    pub(super) reverse: bool,
    /// The interfaces by which the data of each direction leave.
    pub(super) places: Places,
    /// The message asks for the opposite flow instead of its own.
    pub(super) instead: bool,
    /// The next node towards the source of the data, if it is known.
    pub(super) previous: Option<IpAddr>,
    /// The message ends here.
    pub(super) last: bool,
}

/// The segments of a node, the innermost one last.
#[derive(Debug, Default)]
pub(super) struct Segments {
    list: Vec<Known>,
    protected: Vec<Prefix>,
}

#[derive(Debug)]
struct Known {
    segment: Segment,
    /// The interfaces of the segment that the node has.
    leads: Vec<IfIndex>,
}

/// What one segment is for a message.
#[derive(Debug, Clone, Copy)]
struct Place {
    scope: u8,
    /// The message comes from a node of the segment.
    comes: bool,
    /// That node is authenticated.
    trusted: bool,
    /// The message goes to a node of the segment.
    goes: bool,
    /// The DSCP that the flow has in the segment.
    dscp: Option<u8>,
}

impl Segments {
    pub(super) fn new(mut list: Vec<Segment>, protected: Vec<Prefix>) -> Self {
        list.sort_by_key(|segment| segment.scope);
        let known = |segment| Known { segment, leads: Vec::new() };
        Self { list: list.into_iter().map(known).collect(), protected }
    }

    /// Whether the node belongs to no segment: LOCAL objects pass.
    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes over the node's interfaces.
    pub(super) fn interfaces(&mut self, list: &[Interface]) {
        for known in &mut self.list {
            let names = &known.segment.interfaces;
            known.leads =
                list.iter().filter(|one| names.contains(&one.name)).map(|one| one.ifindex).collect();
        }
    }

    /// Adds LOCAL to a message that enters a segment, takes out what is of a segment that it leaves, and what a node that is not
    /// authenticated sent. The second result is the number of objects that were not trusted.
    pub(super) fn cross(&self, way: &Way, message: &QosMessage<'_>) -> (Crossing, u32) {
        let adds = matches!(message.kind, QosType::QUERY | QosType::RESERVE | QosType::COMMIT);
        let places = self.places(way, message, adds);
        let mut crossing = Crossing::default();
        let mut refused = 0;
        let w = &mut Writer::new(&mut crossing.objects);
        for object in message.kept() {
            let place = scope_of(&object).and_then(|scope| places.iter().find(|one| one.scope == scope));
            let crosses = place.is_none_or(|one| one.trusted && one.goes || !one.comes && !one.goes);
            if crosses {
                // What was parsed has a valid length.
                let _ = object.encode(w);
            } else if place.is_some_and(|one| !one.trusted) {
                refused += 1;
            }
        }
        let inside = |one: &Place| one.goes.then_some(()).and(one.dscp).map(|dscp| (one.scope, dscp));
        crossing.local = places.iter().filter_map(inside).collect();
        let added = places.iter().filter(|one| !one.comes).filter_map(inside);
        added.for_each(|(scope, dscp)| add(w, scope, dscp));
        // The second direction is always the opposite one.
        let [first, second] = way.places;
        crossing.marks = [self.mark(way, &places, first, way.instead), self.mark(way, &places, second, true)];
        (crossing, refused)
    }

    /// What each segment is for a message. `adds`: the node adds the DSCP of a segment that the message enters.
    fn places(&self, way: &Way, message: &QosMessage<'_>, adds: bool) -> Vec<Place> {
        let mut places: Vec<Place> = self.list.iter().map(|known| self.place(known, way, message)).collect();
        let outer = places.iter().rev().find_map(|one| one.dscp.filter(|_| one.comes));
        for (place, known) in
            places.iter_mut().zip(&self.list).filter(|(one, _)| !one.comes && one.goes && adds)
        {
            let mapped = outer.and_then(|outer| known.segment.map.iter().find(|(from, _)| *from == outer));
            place.dscp = mapped.map(|(_, to)| *to).or(known.segment.dscp);
        }
        places
    }

    fn place(&self, known: &Known, way: &Way, message: &QosMessage<'_>) -> Place {
        let Known { segment, leads } = known;
        let is_of = |address: IpAddr| segment.nodes.iter().any(|net| net.contains(address));
        let comes = way.from.is_some_and(|(address, _)| is_of(address));
        let known = |(address, authenticated): (IpAddr, bool)| {
            authenticated || self.protected.iter().any(|net| net.contains(address))
        };
        let trusted = comes && way.from.is_some_and(known);
        let goes = match way.reverse {
            _ if way.last => false,
            true => way.previous.is_some_and(is_of),
            false => leads.contains(&way.places[0]),
        };
        let valid = |local: &Local<'_>| local.scope == segment.scope && local.kind == DSCP;
        let dscp = message.local().filter(valid).find_map(|local| local.data.first().copied());
        let dscp = dscp.filter(|dscp| trusted && *dscp <= 63);
        Place { scope: segment.scope, comes, trusted, goes, dscp }
    }

    /// The DSCP of the packets that leave this node by an interface: that of the innermost segment that they go into, or what the
    /// innermost one that they leave has for them. `opposite`: they are those of the opposite flow.
    fn mark(&self, way: &Way, places: &[Place], egress: IfIndex, opposite: bool) -> Option<u8> {
        if egress == IfIndex::NONE {
            return None;
        }
        let both = || places.iter().zip(&self.list).rev().filter(|(place, _)| place.dscp.is_some());
        let into = both().find(|(_, known)| known.leads.contains(&egress)).and_then(|(place, _)| place.dscp);
        // A message with the packets comes from where they come from.
        let against = way.reverse != opposite;
        let leaves = |place: &Place| if against { place.goes } else { place.comes };
        into.or_else(|| both().find(|(place, _)| leaves(place)).map(|(_, known)| known.segment.outside))
    }
}

/// The scope of a LOCAL object; `None`: it is another object.
fn scope_of(object: &Object<'_>) -> Option<u8> {
    (object.class.0 == QosClass::LOCAL.0)
        .then(|| Local::parse(object.contents))
        .flatten()
        .map(|local| local.scope)
}

/// Appends a DSCP for a segment.
fn add(w: &mut Writer<'_>, scope: u8, dscp: u8) {
    let local = Local { id: ITEM, kind: DSCP, scope, data: &[dscp] };
    // Five octets always fit.
    let _ = write(w, Class(QosClass::LOCAL.0), 1, |w| local.encode(w));
}

/// The LOCAL objects of DSCPs.
pub(super) fn objects(local: &[(u8, u8)]) -> Vec<u8> {
    let mut octets = Vec::new();
    let w = &mut Writer::new(&mut octets);
    local.iter().for_each(|(scope, dscp)| add(w, *scope, *dscp));
    octets
}

impl QosClient {
    /// The next node towards the source of the data. The record of the session's own flow has both ends of the way.
    fn previous(&self, session: Option<SessionId>) -> Option<IpAddr> {
        let key = self.find(session?, false)?;
        self.records.get(key)?.previous()
    }

    /// The way of a message that arrived.
    pub(super) fn way(&self, job: &Job, places: Places) -> Way {
        Way {
            from: Some((job.hop.address, job.hop.identity.is_some())),
            reverse: job.reverse,
            places,
            instead: job.instead,
            previous: self.previous(Some(job.session)),
            last: job.last,
        }
    }

    /// What the segments of this node make of a request that arrived; `None`: the node has no segments.
    pub(super) fn segments_of(
        &mut self,
        key: Key,
        job: &Job,
        places: Option<Places>,
        message: &QosMessage<'_>,
    ) -> Option<Crossing> {
        if self.segments.is_empty() {
            return None;
        }
        let places = places.or_else(|| self.records.get(key).map(|record| record.places));
        let way = self.way(job, places.unwrap_or([IfIndex::NONE; 2]));
        Some(self.cross(&way, message))
    }

    /// What goes on of the LOCAL objects of a message that arrived.
    pub(super) fn cross(&mut self, way: &Way, message: &QosMessage<'_>) -> Crossing {
        let (crossing, refused) = self.segments.cross(way, message);
        self.counters.local_untrusted += u64::from(refused);
        crossing
    }

    /// Takes over what a request that this node makes says of segments. Whether packets get another DSCP.
    pub(super) fn enter_segments(&mut self, key: Key, reverse: bool) -> bool {
        if self.segments.is_empty() {
            return false;
        }
        let Some(record) = invariant!(self.records.get(key), "a request that enters segments has a record")
        else {
            return false;
        };
        let Record { places, instead, .. } = *record;
        let way = Way {
            from: None,
            reverse,
            places,
            instead,
            previous: self.previous(record.session),
            last: false,
        };
        let (crossing, _) = self.segments.cross(&way, &QosMessage::new(QosType::RESERVE, record.flow));
        self.marked(key, &crossing)
    }

    /// Takes over what LOCAL objects say of a session. Whether its packets get another DSCP.
    pub(super) fn marked(&mut self, key: Key, crossing: &Crossing) -> bool {
        let Some(record) = invariant!(self.records.get_mut(key), "marks have a record") else { return false };
        if record.local != crossing.local {
            record.local.clone_from(&crossing.local);
        }
        core::mem::replace(&mut record.marks, crossing.marks) != crossing.marks
    }

    /// The octets of the LOCAL objects that the requests of a session have when they leave this node.
    pub(super) fn local_of(&self, key: Key) -> Vec<u8> {
        self.records.get(key).map(|record| objects(&record.local)).unwrap_or_default()
    }
}

/// The message with other objects in addition to its own.
pub(super) const fn with_objects<'a>(message: &QosMessage<'a>, octets: &'a [u8]) -> QosMessage<'a> {
    QosMessage { objects: Objects::of(octets), ..*message }
}
