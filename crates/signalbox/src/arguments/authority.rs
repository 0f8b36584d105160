//! What authorizes a request.

use clap::Args;
use signalbox_api::rsvp::v1 as rsvp;
use signalbox_api::v1;

use super::values::{Octets, octets, priority};

/// What authorizes a request. Each protocol has its own form of it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Authority")]
pub(crate) struct AuthorityArgs {
    /// Preemption priority, and behind a slash the defending priority if it differs (RFC 3181): 0 to 65535. With casp one priority.
    #[arg(long, value_name = "SETUP[/DEFENDING]", value_parser = priority)]
    pub(crate) priority: Option<v1::Priority>,
    /// Attribute list of a SESSION_AUTH object (RFC 5981), with qos: a file, or hexadecimal digits.
    #[arg(long, value_name = "@FILE", value_parser = octets)]
    pub(crate) token: Option<Octets>,
    /// Login name of the user (RFC 3182), with rsvp.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Complete POLICY_DATA objects, one after the other (RFC 2750), with rsvp: a file, or hexadecimal digits.
    #[arg(long, value_name = "@FILE", value_parser = octets)]
    pub(crate) policy_data: Option<Octets>,
}

impl AuthorityArgs {
    /// The authority as part of a request; `None` if there is none.
    pub(crate) fn request(&self) -> Option<v1::Authority> {
        let authority = v1::Authority {
            priority: self.priority,
            session_auth: self.token.as_ref().map(|octets| octets.0.clone()),
            policy_data: self.policy_data.as_ref().map(|octets| octets.0.clone()),
            user: self.user.clone(),
        };
        (authority != v1::Authority::default()).then_some(authority)
    }
}

/// Identities in the form NAME or NAME,DN (RFC 3182).
pub(crate) fn identities(names: &[String], kind: rsvp::IdentityKind) -> impl Iterator<Item = rsvp::Identity> {
    names.iter().map(move |text| {
        let (name, locator) =
            text.split_once(',').map_or((text.as_str(), None), |(name, dn)| (name, Some(dn)));
        rsvp::Identity {
            kind: kind.into(),
            name: name.to_owned(),
            locator: locator.map(|locator| locator.trim_start().to_owned()),
        }
    })
}
