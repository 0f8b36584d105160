//! Resources that are held back without giving them to the flow.

use signalbox_core::{Key, ReserverId};
use signalbox_resources::request::Session;
use signalbox_resources::{GrantRequest, LostWhy, ResourceOutput};

use crate::support::*;

fn held(port: u16, mbit: u64) -> GrantRequest {
    GrantRequest { held: true, ..request_of(port, mbit) }
}

/// The next output that concerns the kernel: the rate in Mbit/s that it installs; 0: it removes.
fn kernel(resources: &mut signalbox_resources::Resources) -> Option<u64> {
    match resources.poll()? {
        ResourceOutput::Install { id, reservation } => {
            let rate = reservation.traffic.rate / MBIT;
            resources.installed(id, Ok(()));
            Some(rate)
        }
        ResourceOutput::Remove { .. } => Some(0),
        other => panic!("{other:?}"),
    }
}

/// What is held back is booked, and the kernel has nothing of it until a change gives it to the flow.
#[test]
fn held_resources_are_booked_and_not_installed() {
    let mut resources = start(config());
    let grant = admit(&mut resources, &held(1, 6)).grant;
    assert_eq!((reserved(&resources), kernel(&mut resources)), (6 * MBIT, None));
    assert!(resources.admit(NOW, &request_of(2, 5)).is_err());
    resources.modify(NOW, grant, &request_of(1, 6)).unwrap();
    assert_eq!((kernel(&mut resources), kernel(&mut resources)), (Some(6), None));
    resources.modify(NOW, grant, &held(1, 4)).unwrap();
    assert_eq!((kernel(&mut resources), kernel(&mut resources)), (Some(0), None));
    assert_eq!(reserved(&resources), 4 * MBIT);
    resources.modify(NOW, grant, &request_of(1, 3)).unwrap();
    assert_eq!(kernel(&mut resources), Some(3));
    resources.release(grant);
    assert_eq!((kernel(&mut resources), reserved(&resources)), (Some(0), 0));
    // One that the kernel never had is not removed from it.
    let grant = admit(&mut resources, &held(1, 6)).grant;
    resources.release(grant);
    assert_eq!(kernel(&mut resources), None);
}

/// An installation that was not polled when the flow lost the resources again never reaches the kernel.
#[test]
fn a_change_back_cancels_the_installation() {
    let mut resources = start(config());
    let grant = admit(&mut resources, &held(1, 6)).grant;
    resources.modify(NOW, grant, &request_of(1, 6)).unwrap();
    resources.modify(NOW, grant, &held(1, 6)).unwrap();
    assert_eq!(kernel(&mut resources), None);
    resources.modify(NOW, grant, &request_of(1, 6)).unwrap();
    assert_eq!((kernel(&mut resources), kernel(&mut resources)), (Some(6), None));
}

/// An installation that was queued before the flow lost the resources goes to the kernel before the removal. Its answer says
/// nothing about what stands then.
#[test]
fn what_was_queued_before_does_not_make_held_resources_stand() {
    let mut resources = start(config());
    let grant = admit(&mut resources, &request_of(1, 6)).grant;
    assert_eq!(kernel(&mut resources), Some(6));
    assert!(resources.reservation(grant).unwrap().in_kernel);
    resources.modify(NOW, grant, &request_of(1, 7)).unwrap();
    resources.modify(NOW, grant, &held(1, 7)).unwrap();
    assert_eq!((kernel(&mut resources), kernel(&mut resources)), (Some(7), Some(0)));
    assert!(!resources.reservation(grant).unwrap().in_kernel);
}

/// In a session the larger grant is booked, and the kernel gets what is not only held back.
#[test]
fn a_session_installs_what_is_not_held() {
    let mut resources = start(config());
    let session = Session::of(Key::from_u64(7));
    let owner = |key| signalbox_resources::Owner { protocol: ReserverId(240), key };
    let reservation =
        |key, held, mbit| GrantRequest { session, held, owner: owner(key), ..request_of(1, mbit) };
    let reserve = admit(&mut resources, &reservation(1, true, 4)).grant;
    assert_eq!((kernel(&mut resources), reserved(&resources)), (None, 4 * MBIT));
    let commit = admit(&mut resources, &reservation(2, false, 3)).grant;
    assert_eq!((kernel(&mut resources), reserved(&resources)), (Some(3), 4 * MBIT));
    let change = admit(&mut resources, &reservation(3, true, 8)).grant;
    assert_eq!((kernel(&mut resources), reserved(&resources)), (None, 8 * MBIT));
    resources.release(change);
    resources.release(reserve);
    assert_eq!((kernel(&mut resources), reserved(&resources)), (None, 3 * MBIT));
    resources.modify(NOW, commit, &reservation(2, true, 3)).unwrap();
    assert_eq!((kernel(&mut resources), reserved(&resources)), (Some(0), 3 * MBIT));
}

/// A held reservation is lost like others, and a late answer of the kernel does not end it.
#[test]
fn held_resources_are_lost_like_others() {
    let mut resources = start(config());
    let grant = admit(&mut resources, &request_of(1, 6)).grant;
    let id = match resources.poll() {
        Some(ResourceOutput::Install { id, .. }) => id,
        other => panic!("{other:?}"),
    };
    resources.modify(NOW, grant, &held(1, 6)).unwrap();
    resources.installed(id, Err(signalbox_core::traffic::ReserveError::Failed));
    assert_eq!((kernel(&mut resources), reserved(&resources)), (Some(0), 6 * MBIT));
    resources.delete(grant);
    match resources.poll() {
        Some(ResourceOutput::Lost { why: LostWhy::Deleted, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(reserved(&resources), 0);
}
