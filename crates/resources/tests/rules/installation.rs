//! What the kernel gets of a reservation, and when.

use signalbox_core::traffic::{Excess, ReserveError, ServiceClass, Treatment};
use signalbox_resources::config::{Queue, ServiceConfig};
use signalbox_resources::{GrantRequest, LostWhy, ResourceOutput};

use crate::support::*;

#[test]
fn a_change_goes_to_the_kernel_once() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &request_of(1, 6));
    kernel.drain(&mut resources);
    resources.modify(NOW, first.grant, &request_of(1, 6)).unwrap();
    assert!(resources.poll().is_none(), "nothing has changed for the kernel");
    resources.modify(NOW, first.grant, &request_of(7, 8)).unwrap();
    kernel.drain(&mut resources);
    let installed: Vec<_> = kernel.installed.values().collect();
    assert_eq!((installed.len(), installed[0].filters[0], installed[0].traffic.rate), (1, flow(7), 8 * MBIT));
    // The old flow is free again, the new one is reserved.
    admit(&mut resources, &request_of(1, 1));
    assert!(resources.admit(NOW, &request_of(7, 1)).is_err());
}

#[test]
fn queues_are_given_as_configured() {
    let mut config = config();
    let link = &mut config.links[0];
    link.own_queues = 1;
    link.diffserv = ServiceConfig { queue: Queue::Own, ..link.diffserv };
    let mut resources = start(config);
    let queue = |resources: &mut signalbox_resources::Resources, request: &GrantRequest| {
        let grant = admit(resources, request).grant;
        let view = resources.reservation(grant).unwrap();
        (view.treatment, grant)
    };
    let (own, first) = queue(&mut resources, &request_of(1, 1));
    assert_eq!(own, Treatment::OwnQueue);
    assert_eq!(
        queue(&mut resources, &request_of(2, 1)).0,
        Treatment::Aggregate(ServiceClass::ControlledLoad)
    );
    let sure = guaranteed(request_of(3, 1), 1, 0);
    assert_eq!(refusal(&mut resources, &sure), "eth1: per_flow_queues: all 1 in use");
    assert!(
        resources.admit(NOW, &GrantRequest { service: ServiceClass::Dscp(10), ..request_of(3, 1) }).is_err()
    );
    resources.release(first);
    assert_eq!(queue(&mut resources, &sure).0, Treatment::OwnQueue);
    let asked =
        GrantRequest { treatment: Some(Treatment::Aggregate(ServiceClass::Dscp(46))), ..request_of(4, 1) };
    assert_eq!(queue(&mut resources, &asked).0, Treatment::Aggregate(ServiceClass::Dscp(46)));
}

/// Excess traffic is best effort by default; configuration or request can change that, and marking is passed on.
#[test]
fn excess_and_marks_reach_the_kernel() {
    let mut config = config();
    config.links[0].diffserv.excess = signalbox_resources::config::ExcessAction::Drop;
    let mut resources = start(config);
    let mut seen = |request: GrantRequest| {
        admit(&mut resources, &request);
        let mut kernel = Kernel::default();
        kernel.drain(&mut resources);
        let reservation = kernel.installed.into_values().next().unwrap();
        (reservation.excess, reservation.mark_dscp)
    };
    assert_eq!(seen(request_of(1, 1)), (Excess::BestEffort, None));
    assert_eq!(seen(GrantRequest { excess: Some(Excess::Drop), ..request_of(2, 1) }), (Excess::Drop, None));
    let marked = GrantRequest { service: ServiceClass::Dscp(46), mark_dscp: Some(46), ..request_of(3, 1) };
    assert_eq!(seen(marked), (Excess::Drop, Some(46)));
}

#[test]
fn what_the_kernel_refuses_is_lost() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &request_of(1, 6));
    kernel.drain(&mut resources);
    assert!(!resources.reservation(first.grant).unwrap().in_kernel);
    resources.installed(first.reservation, Ok(()));
    assert!(resources.reservation(first.grant).unwrap().in_kernel);
    // Of two pending changes only the last answer counts.
    resources.modify(NOW, first.grant, &request_of(1, 7)).unwrap();
    kernel.drain(&mut resources);
    resources.modify(NOW, first.grant, &request_of(1, 8)).unwrap();
    kernel.drain(&mut resources);
    resources.installed(first.reservation, Err(ReserveError::Failed));
    assert_eq!(resources.len(), 1);
    resources.installed(first.reservation, Err(ReserveError::Full));
    assert_eq!((resources.len(), reserved(&resources)), (0, 0));
    let lost = kernel.drain(&mut resources);
    assert_eq!(lost, [(1, first.grant, LostWhy::KernelRefused(ReserveError::Full))]);
    assert!(kernel.installed.is_empty());
    resources.installed(first.reservation, Ok(()));
    let counters = resources.counters();
    assert_eq!((counters.kernel_refused, counters.answers_ignored), (1, 1));
}

/// A reservation that ends before its installation is polled is not reported to the kernel.
#[test]
fn what_was_never_installed_is_not_removed() {
    let mut resources = start(config());
    let first = admit(&mut resources, &request_of(1, 6));
    resources.modify(NOW, first.grant, &request_of(1, 7)).unwrap();
    resources.release(first.grant);
    assert!(resources.poll().is_none());
}

/// Changes keep their order and content until they are polled: the sum never exceeds the share.
#[test]
fn what_is_queued_keeps_its_content() {
    let mut resources = start(config());
    let mut kernel = Kernel::default();
    let first = admit(&mut resources, &request_of(1, 2));
    let second = admit(&mut resources, &request_of(2, 8));
    kernel.drain(&mut resources);
    // The first reservation may have 7 only after the second has 3: the change that is queued for it before has 1, not
    // 7.
    resources.modify(NOW, first.grant, &request_of(1, 1)).unwrap();
    resources.modify(NOW, second.grant, &request_of(2, 3)).unwrap();
    resources.modify(NOW, first.grant, &request_of(1, 7)).unwrap();
    let mut steps = Vec::new();
    while kernel.step(&mut resources).is_some() {
        steps.push(kernel.sum(ETH1) / MBIT);
    }
    assert_eq!(steps, [9, 4, 10]);
    // Resources are free only after the end of the reservation.
    resources.modify(NOW, first.grant, &request_of(1, 1)).unwrap();
    admit(&mut resources, &request_of(3, 6));
    resources.release(first.grant);
    while kernel.step(&mut resources).is_some() {
        assert!(kernel.sum(ETH1) <= 10 * MBIT);
    }
    assert_eq!(kernel.sum(ETH1), 9 * MBIT);
}

#[test]
fn outputs_are_polled_in_the_order_of_their_causes() {
    let mut resources = start(config());
    let first = admit(&mut resources, &request_of(1, 6));
    assert!(matches!(resources.poll(), Some(ResourceOutput::Install { id, .. }) if id == first.reservation));
    resources.release(first.grant);
    let second = admit(&mut resources, &request_of(1, 10));
    assert_eq!(resources.poll(), Some(ResourceOutput::Remove { id: first.reservation }));
    assert!(matches!(resources.poll(), Some(ResourceOutput::Install { id, .. }) if id == second.reservation));
}
