//! What the engine asks admission control (RFC 2205 §2.1, §3.11.2).

use core::net::IpAddr;

use signalbox_core::traffic::ServiceClass;
use signalbox_core::{IfIndex, Time};
use signalbox_resources::intserv::RSpec;
use signalbox_resources::{Available, End, GrantId, GrantRequest, Policing, Refusal, Resources};

/// A request was granted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Granted {
    /// Identifies the grant in later calls and inputs. It is not 0.
    pub grant: GrantId,
    /// The RSpec of guaranteed service to send upstream, which may be slower than requested, with less slack.
    pub rspec: Option<RSpec>,
}

/// Admission control and traffic control of a node, as RSVP sees them. [`Resources`] shares the links of a node among RSVP and other
/// protocols. A program with admission control of its own, or with links that need no admission control, implements this trait instead.
///
/// A grant that ends for another reason than [`Admission::release`] becomes an [`Input::Lost`](super::Input::Lost), and one that becomes
/// smaller an [`Input::Reduced`](super::Input::Reduced).
pub trait Admission {
    /// Asks for a reservation, or with `former` for one in the place of an existing one.
    ///
    /// # Errors
    /// The refusal. The existing reservation stays.
    fn request(&mut self, now: Time, former: Option<GrantId>, ask: &GrantRequest)
    -> Result<Granted, Refusal>;

    /// Releases a grant.
    fn release(&mut self, grant: GrantId);

    /// Sets the conditions under which traffic may exceed a grant (RFC 2205 §3.8), after another reservation changed them.
    fn police(&mut self, grant: GrantId, policing: Policing);

    /// What an interface offers to a service, for the ADSPECs of Paths; `None`: it does not offer the service.
    fn available(&self, ifindex: IfIndex, service: ServiceClass) -> Option<Available>;

    /// What the requester is told of a refusal besides its kind.
    fn told(&self, _refusal: &Refusal) -> Option<String> {
        None
    }

    /// The reason why grants are released from now on, until the next input.
    fn because(&mut self, _end: End) {}

    /// Another node refused a request of which this node has granted its part. That part stands.
    fn note_refused_beyond(&mut self, _grant: GrantId, _node: IpAddr) {}
}

impl Admission for Resources {
    fn request(
        &mut self,
        now: Time,
        former: Option<GrantId>,
        ask: &GrantRequest,
    ) -> Result<Granted, Refusal> {
        let admitted = match former {
            Some(grant) => self.modify(now, grant, ask),
            None => self.admit(now, ask),
        }?;
        Ok(Granted { grant: admitted.grant, rspec: admitted.rspec })
    }

    fn release(&mut self, grant: GrantId) {
        Self::release(self, grant);
    }

    fn police(&mut self, grant: GrantId, policing: Policing) {
        Self::police(self, grant, policing);
    }

    fn available(&self, ifindex: IfIndex, service: ServiceClass) -> Option<Available> {
        Self::available(self, ifindex, service)
    }

    fn told(&self, refusal: &Refusal) -> Option<String> {
        Self::told(self, refusal)
    }

    fn because(&mut self, end: End) {
        Self::because(self, end);
    }

    fn note_refused_beyond(&mut self, grant: GrantId, node: IpAddr) {
        Self::note_refused_beyond(self, grant, node);
    }
}
