//! The kernel of a firewall, and the pinholes that the real code makes in it, from one daemon to the next.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signalbox_core::Time;
use signalbox_core::handover::{Entries, write_part};
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_linux::pinhole::Pinholes;
use signalbox_node::natfw::left_binding;

use crate::kernel::{Fate, Kernel, Packet};
use crate::octets::{open, open_again};

/// Longer than a draw takes. The times of the simulation are not those of the code that asks the kernel.
const LONG: Duration = Duration::from_secs(600);

/// The octets and packets of one firewall after the other.
pub(crate) struct Enforcer {
    pub(crate) kernel: Arc<Mutex<Kernel>>,
    /// `None`: no daemon runs.
    pinholes: Option<Pinholes>,
    held: BTreeMap<PinholeId, Pinhole>,
    /// When this daemon removes what a former one left.
    adopted: Option<Time>,
}

impl Enforcer {
    pub(crate) fn new() -> Self {
        Self::on(Kernel::new(Vec::new()))
    }

    /// On a kernel without rules.
    pub(crate) fn on(kernel: Kernel) -> Self {
        let (kernel, pinholes) = open(kernel);
        Self { kernel, pinholes: Some(pinholes), held: BTreeMap::new(), adopted: None }
    }

    /// The kernel is that of a firewall with these addresses.
    pub(crate) fn begin(&mut self, own: Vec<IpAddr>) {
        self.kernel.lock().unwrap().is_at(own);
    }

    pub(crate) fn forward(&self, packet: &Packet) -> Fate {
        self.kernel.lock().unwrap().forward(packet)
    }

    /// Brings the kernel to what the engine asks for.
    pub(crate) fn follow(&mut self, now: Time, wanted: BTreeMap<PinholeId, Pinhole>) {
        let Some(pinholes) = &mut self.pinholes else { return };
        if self.adopted.is_some_and(|at| at <= now) {
            self.adopted = None;
            pinholes.adopt(Duration::ZERO);
        }
        for id in self.held.keys().filter(|id| !wanted.contains_key(id)) {
            pinholes.release(*id);
        }
        for (id, pinhole) in &wanted {
            if self.held.get(id) != Some(pinhole) {
                pinholes.request(*id, pinhole.clone(), LONG);
            }
        }
        self.held = wanted;
        for (id, result) in pinholes.flush() {
            if result.is_err() {
                self.held.remove(&id);
            }
        }
    }

    /// The daemon stops as planned, and leaves the pinholes that are named to the next one.
    pub(crate) fn stop(&mut self, leaves: impl Fn(PinholeId) -> bool) {
        let pinholes = self.pinholes.take().unwrap();
        pinholes.keep(LONG, leaves).unwrap();
    }

    /// The daemon crashes: the kernel keeps what it has.
    pub(crate) fn crash(&mut self) {
        // What is dropped asks the kernel to close its pinholes.
        self.kernel.lock().unwrap().is_reachable(false);
        self.pinholes = None;
        self.kernel.lock().unwrap().is_reachable(true);
    }

    /// The next daemon starts. The result is what the node takes over of NATs: the bindings in the kernel, whose ports are kept for
    /// `time`.
    pub(crate) fn start(&mut self, now: Time, time: Duration) -> Vec<u8> {
        let mut pinholes = open_again(&self.kernel);
        let (mut natfw, mut casp, mut octets) = (Entries::default(), Entries::default(), Vec::new());
        for (binding, left) in pinholes.bindings_left().unwrap().iter().filter(|_| !time.is_zero()) {
            natfw.push(&left_binding(binding, (*left).min(time)));
            casp.push(&binding.write((*left).min(time)));
        }
        write_part(&mut octets, "natfw", &natfw);
        write_part(&mut octets, "casp", &casp);
        pinholes.adopt(LONG);
        (self.pinholes, self.held, self.adopted) = (Some(pinholes), BTreeMap::new(), Some(now + time));
        octets
    }

    /// The daemon removes at once what the former one left and no session is for.
    pub(crate) const fn adopt_nothing(&mut self) {
        self.adopted = Some(Time::ZERO);
    }

    /// Removes all that a draw made.
    pub(crate) fn end(&mut self) {
        self.adopted = Some(Time::ZERO);
        self.follow(Time::ZERO, BTreeMap::new());
        self.kernel.lock().unwrap().forget();
    }
}
