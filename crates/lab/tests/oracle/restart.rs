//! What operators do at random: they change the policy of a firewall, or end its daemon and start it again, and daemons crash.

use std::time::Duration;

use signalbox_core::node::Input;

use crate::draw::Draw;
use crate::enforcer::Enforcer;
use crate::policy::World;
use crate::rules::Policy;

/// How long a stop leaves pinholes at most.
const KEPT: Duration = Duration::from_secs(60);

impl World {
    /// A firewall has another policy, or the same one with another daemon.
    pub(crate) fn operate(&mut self, draw: &mut Draw, enforcers: &mut [Enforcer]) {
        let at = usize::try_from(draw.below(self.firewalls.len() as u64)).unwrap();
        let kind = draw.below(100);
        let policy = if kind >= 60 && draw.percent(40) {
            self.judge.policies.last().unwrap()[at].clone()
        } else {
            Policy::draw(draw, &self.judge.network, at)
        };
        if kind >= 60 {
            // What stands, or stood.
            let asked = self.judge.wanted.asked.values().flatten();
            self.past.extend(asked.filter_map(|asked| asked.what.packet()));
        }
        match kind {
            0..60 => self.reload(at, policy),
            60..85 => self.stop(at, policy, &mut enforcers[at]),
            _ => {
                let adopt = draw.one(&[0, 3, 600]);
                self.crash(at, policy, Duration::from_secs(adopt), &mut enforcers[at]);
            }
        }
    }

    /// A daemon stops as planned: it gives its sessions and its pinholes to the next one.
    fn stop(&mut self, at: usize, policy: Policy, enforcer: &mut Enforcer) {
        let engine = self.sim.engine(self.firewalls[at].node).unwrap();
        let left = engine.hand_over(self.sim.now());
        enforcer.stop(|id| engine.leaves(id));
        self.judge.stopped(at, policy.clone());
        let bindings = enforcer.start(self.sim.now(), KEPT);
        // A pinhole without a session of the former daemon has no owner.
        enforcer.adopt_nothing();
        self.start(at, &policy, &[left, bindings].concat());
    }

    /// A daemon crashes. The next one gives those who asked this time to come again.
    fn crash(&mut self, at: usize, policy: Policy, adopt: Duration, enforcer: &mut Enforcer) {
        enforcer.crash();
        self.judge.crashed(at, policy.clone(), self.sim.now() + adopt);
        let bindings = enforcer.start(self.sim.now(), adopt);
        self.start(at, &policy, &bindings);
    }

    /// The next daemon starts, and takes over what the former one left.
    fn start(&mut self, at: usize, policy: &Policy, left: &[u8]) {
        let firewall = &self.firewalls[at];
        firewall.config.borrow_mut().resources = policy.config();
        self.sim.restart(firewall.node);
        if !left.is_empty() {
            self.sim.input(firewall.node, Input::Handover(left));
        }
    }
}
