//! Arbitrary steps in any order: no link ever exceeds its share, and the sums agree with the kernel and with the
//! owners.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use signalbox_core::node::Interface;
use signalbox_core::traffic::{ReserveError, ServiceClass};
use signalbox_core::{IfIndex, Key, Time};
use signalbox_resources::config::{ANY_LINK, LinkConfig, RuleConfig};
use signalbox_resources::request::Session;
use signalbox_resources::units::Share;
use signalbox_resources::{Config, GrantId, GrantRequest, Resources};

use crate::support::*;

const LINKS: [(IfIndex, &str); 2] = [(ETH1, "eth1"), (ETH2, "eth2")];

#[derive(Debug, Clone)]
struct Wish {
    port: u16,
    mbit: u64,
    service: u8,
    slack: u32,
    priority: (u16, u16),
    session: u8,
    second_link: bool,
    wide: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Admit(Wish),
    /// The grant, its new request, and whether only the rate changes.
    Modify(usize, Wish, bool),
    Release(usize),
    /// Poll this number of outputs.
    Poll(usize),
    Answer(bool),
    Measure(bool, u64),
    Interface(bool, bool, bool),
    /// Other settings: whether reservations may be preempted, the limit of the rule, the share of the links in percent.
    Reload(bool, u32, u8),
}

fn wish() -> impl Strategy<Value = Wish> {
    let kind = (0u16..30, 1u64..6, 0u8..4, 0u32..30_000, (0u16..4, 0u16..4));
    (kind, 0u8..8, any::<bool>(), any::<bool>()).prop_map(|(kind, session, second_link, wide)| {
        let (port, mbit, service, slack, (a, b)) = kind;
        let priority = (a.min(b), a.max(b));
        Wish { port, mbit, service, slack, priority, session, second_link, wide }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => wish().prop_map(Step::Admit),
        8 => (any::<usize>(), wish(), prop::bool::weighted(0.7))
            .prop_map(|(at, wish, same)| Step::Modify(at, wish, same)),
        5 => any::<usize>().prop_map(Step::Release),
        4 => (0usize..4).prop_map(Step::Poll),
        4 => prop::bool::weighted(0.8).prop_map(Step::Answer),
        1 => (any::<bool>(), 0u64..14).prop_map(|(second, mbit)| Step::Measure(second, mbit)),
        1 => (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(second, there, up)| Step::Interface(second, there, up)),
        1 => (any::<bool>(), 1u32..9, 20u8..95)
            .prop_map(|(preemption, most, share)| Step::Reload(preemption, most, share)),
    ]
}

fn request(wish: &Wish) -> GrantRequest {
    let mut request = at_priority(wish.priority.0, wish.priority.1, request_of(wish.port, wish.mbit));
    if wish.wide {
        request.filters.push(flow(wish.port + 100));
    }
    if wish.second_link {
        request.ifindex = ETH2;
    }
    request.session = Session::of(Key::from_u64((wish.session + 1).into())).filter(|_| wish.session < 3);
    match wish.service {
        0 => guaranteed(request, wish.mbit + 1, wish.slack),
        1 => GrantRequest { service: ServiceClass::Dscp(46), ..request },
        _ => request,
    }
}

fn start_anew() -> Resources {
    let mut resources = start(settings(true, 8, 90));
    for (ifindex, _) in LINKS {
        resources.measured(ifindex, Some(10 * MBIT));
    }
    resources
}

fn settings(preemption: bool, most: u32, share: u8) -> Config {
    let link = LinkConfig {
        reservable: Share::percent(share),
        buffer: Some(120_000),
        own_queues: 3,
        ..LinkConfig::new(ANY_LINK, None)
    };
    let mut link = LinkConfig { max_reservations: Some(9), ..link };
    link.controlled_load.max_share = Some(Share::percent(60));
    let mut rule = RuleConfig::new("all", signalbox_resources::config::Action::Allow);
    rule.max_total = Some(signalbox_resources::Rate(9 * MBIT));
    rule.max_reservations = Some(most);
    Config {
        links: vec![link],
        rules: vec![rule],
        preemption,
        max_reservations: 14,
        max_sharers: 3,
        max_victims: 4,
        ..Config::default()
    }
}

/// The state outside of the crate.
struct World {
    resources: Resources,
    kernel: Kernel,
    held: BTreeSet<GrantId>,
    /// The last argument of `interfaces`.
    up: BTreeMap<IfIndex, bool>,
}

impl World {
    fn lost(&mut self, lost: impl IntoIterator<Item = Lost>) {
        for (_, grant, _) in lost {
            assert!(self.held.remove(&grant), "{grant} was lost twice, or never held");
        }
    }

    fn drain(&mut self) {
        let lost = self.kernel.drain(&mut self.resources);
        self.lost(lost);
    }

    fn share(&self, ifindex: IfIndex) -> u64 {
        self.resources.links().find(|link| link.ifindex == ifindex).map_or(0, |link| link.share)
    }

    /// Checks the conditions that hold always, also between two outputs.
    fn check_always(&self) {
        for (ifindex, name) in LINKS {
            assert!(self.kernel.sum(ifindex) <= self.share(ifindex), "{name} holds too much");
        }
        for link in self.resources.links() {
            assert!(link.reserved <= link.share, "{} books too much", link.name);
            let services: u64 = link.services.iter().map(|service| service.reserved).sum();
            assert_eq!(services, link.reserved);
            assert!(link.services.iter().all(|service| service.reserved <= service.limit));
        }
    }

    /// Checks the conditions that hold when all outputs are polled.
    fn check_at_rest(&self) {
        let views: Vec<_> = self.resources.reservations().collect();
        assert_eq!(views.iter().map(|view| view.grant).collect::<BTreeSet<_>>(), self.held);
        let standing: BTreeMap<_, _> =
            views.iter().map(|view| (view.reservation, (view.ifindex, view.charged))).collect();
        let installed = self.kernel.installed.iter();
        let installed: BTreeMap<_, _> = installed.map(|(id, it)| (*id, (it.ifindex, it.rate()))).collect();
        assert_eq!(standing, installed);
        for link in self.resources.links() {
            assert_eq!(link.reserved, self.kernel.sum(link.ifindex));
            let here = standing.values().filter(|(ifindex, _)| *ifindex == link.ifindex).count();
            assert_eq!(usize::try_from(link.reservations).unwrap(), here);
        }
    }

    fn take(&mut self, step: Step) {
        let pick = |held: &BTreeSet<GrantId>, at: usize| held.iter().nth(at % held.len().max(1)).copied();
        match step {
            Step::Admit(wish) => {
                let request = request(&wish);
                let foreseen = self.resources.dry_run(NOW, &request).result;
                match self.resources.admit(NOW, &request) {
                    Ok(admitted) => {
                        let foreseen = foreseen.unwrap();
                        assert_eq!(foreseen.rspec, admitted.rspec);
                        assert_eq!(foreseen.victims.len(), usize::try_from(admitted.preempted).unwrap());
                        assert!(self.held.insert(admitted.grant));
                    }
                    Err(refusal) => assert_eq!(foreseen, Err(refusal)),
                }
            }
            Step::Modify(at, wish, same) => {
                if let Some(grant) = pick(&self.held, at) {
                    let before = self.resources.reservation(grant).map(|view| format!("{view:?}"));
                    let books: Vec<_> = self.resources.links().map(|link| link.reserved).collect();
                    let mut request = request(&wish);
                    if let Some(view) = self.resources.reservation(grant) {
                        request.session = view.session;
                        if same {
                            request.ifindex = view.ifindex;
                            request.filters = view.filters;
                            request.service = view.service;
                            request.guaranteed = request.guaranteed.filter(|_| view.rspec.is_some());
                        }
                    }
                    if self.resources.modify(NOW, grant, &request).is_err() {
                        assert_eq!(self.resources.reservation(grant).map(|view| format!("{view:?}")), before);
                        assert_eq!(
                            self.resources.links().map(|link| link.reserved).collect::<Vec<_>>(),
                            books
                        );
                    }
                }
            }
            Step::Release(at) => {
                if let Some(grant) = pick(&self.held, at) {
                    // The grant may be lost without a report so far: then the release has no effect, and the report
                    // follows.
                    if self.resources.reservation(grant).is_some() {
                        self.held.remove(&grant);
                    }
                    self.resources.release(grant);
                }
            }
            Step::Poll(outputs) => {
                for _ in 0..outputs {
                    let Some(lost) = self.kernel.step(&mut self.resources) else { break };
                    self.lost(lost);
                    self.check_always();
                }
            }
            Step::Answer(yes) => {
                if !self.kernel.owed.is_empty() {
                    let id = self.kernel.owed.remove(0);
                    // The simulated kernel refuses only reservations that do not change meanwhile.
                    self.resources.installed(id, if yes { Ok(()) } else { Err(ReserveError::Failed) });
                }
            }
            // A link loses capacity before the next request: until that is polled the kernel has too much.
            Step::Measure(second, mbit) => {
                let ifindex = if second { ETH2 } else { ETH1 };
                self.resources.measured(ifindex, Some(mbit * MBIT));
                self.drain();
            }
            Step::Reload(preemption, most, share) => {
                self.resources.reload(NOW, settings(preemption, most, share)).unwrap();
                self.drain();
            }
            Step::Interface(second, there, up) => {
                let (changed, _) = LINKS[usize::from(second)];
                if there {
                    self.up.insert(changed, up);
                } else {
                    self.up.remove(&changed);
                }
                let now = LINKS.iter().filter_map(|(ifindex, name)| {
                    let up = *self.up.get(ifindex)?;
                    Some(Interface { up, ..interface(*ifindex, name) })
                });
                let now: Vec<_> = now.collect();
                self.resources.interfaces(&now);
                self.drain();
            }
        }
        self.check_always();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_share_is_never_exceeded(steps in prop::collection::vec(step(), 1..120)) {
        let up = LINKS.iter().map(|(ifindex, _)| (*ifindex, true)).collect();
        let mut world =
            World { resources: start_anew(), kernel: Kernel::default(), held: BTreeSet::new(), up };
        for step in steps {
            world.take(step);
        }
        world.drain();
        world.check_always();
        world.check_at_rest();
        world.kernel.answer_all(&mut world.resources);
        prop_assert!(world.resources.reservations().all(|view| view.in_kernel));
        for grant in core::mem::take(&mut world.held) {
            world.resources.release(grant);
        }
        world.drain();
        prop_assert!(world.kernel.installed.is_empty() && world.resources.is_empty());
        for link in world.resources.links() {
            prop_assert_eq!((link.reserved, link.buffer, link.reservations, link.own_queues), (0, 0, 0, 0));
        }
        // No state remains that could refuse the next request.
        world.up = LINKS.iter().map(|(ifindex, _)| (*ifindex, true)).collect();
        let interfaces: Vec<_> = LINKS.iter().map(|(ifindex, name)| interface(*ifindex, name)).collect();
        world.resources.interfaces(&interfaces);
        world.resources.reload(NOW, settings(true, 8, 90)).unwrap();
        world.resources.measured(ETH1, Some(10 * MBIT));
        for port in 0..6 {
            let request = request_of(port, 1);
            prop_assert!(world.resources.admit(Time::ZERO, &request).is_ok());
        }
    }
}
