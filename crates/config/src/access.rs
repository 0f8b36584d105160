//! `[[control.access]]`: what users and groups of this host may do over the control socket.

use std::{fmt, io};

use signalbox_linux::accounts;

use crate::keys::Keys;
use crate::kind::{choice, text};

const MEANING: &str = "What users and groups of this host may do over the socket; they also need permission to open it (`mode`, `group`). \
     Without any such table, everybody who may open the socket may make every call. With one, a user has the roles of \
     all tables that name him or a group of his, and other users may make no call. Root and the user of the daemon may \
     always make every call. The members of groups are read at the start and at each reload.";

/// What a user may do. Every role includes [`View`](Self::View), and [`Administer`](Self::Administer) includes all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// To read: state, metrics, events, the configuration.
    View,
    /// To signal: reservations, queries, pings, RSVP sessions.
    Request,
    /// To be a signaling application of GIST.
    Application,
    /// To delete what belongs to others, and to reload the configuration.
    Administer,
}

impl Role {
    /// All roles with their names.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("view", Self::View),
        ("request", Self::Request),
        ("application", Self::Application),
        ("administer", Self::Administer),
    ];

    /// Whether a user with this role may do what needs `needed`.
    #[must_use]
    pub fn includes(self, needed: Self) -> bool {
        self == needed || needed == Self::View || self == Self::Administer
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, role)| role == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// One table of `[[control.access]]`. It names a user or a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Name or number of a user.
    pub user: Option<String>,
    /// Name or number of a group.
    pub group: Option<String>,
    /// The role.
    pub role: Option<Role>,
}

/// `[[control.access]]`
pub(crate) fn declare(list: &mut Vec<Access>, keys: &mut Keys<'_>) {
    keys.array("access", MEANING, list, Access::default, |keys, access| {
        keys.option("user", &mut access.user, text(64), "none", "Name or number of a user.");
        keys.option("group", &mut access.group, text(64), "none", "Name or number of a group.");
        keys.needed(
            "role",
            &mut access.role,
            choice(Role::ALL),
            "`\"view\"`: calls that read. `\"request\"`: also reservations, passages, queries, pings and RSVP sessions. \
             `\"application\"`: also signaling applications of GIST and clients of CASP. `\"administer\"`: every call; deletions \
             and reloads need it.",
        );
        let exactly_one = access.user.is_some() != access.group.is_some();
        keys.check(exactly_one, &["user", "group", "role"], "write one of user and group");
    });
}

/// Checks that the users and groups exist on this host.
pub(crate) fn check_all(list: &[Access], keys: &mut Keys<'_>) {
    for (number, access) in (1..).zip(list) {
        let key = |name: &str| format!("control.access[{number}].{name}");
        if let Some(user) = &access.user {
            check(accounts::user(user), "user", user, &key("user"), keys);
        }
        if let Some(group) = &access.group {
            check(accounts::group(group), "group", group, &key("group"), keys);
        }
    }
}

/// Reports a user or a group that this host does not have.
pub(crate) fn check(found: io::Result<Option<u32>>, what: &str, name: &str, key: &str, keys: &mut Keys<'_>) {
    match found {
        Ok(Some(_)) => {}
        Ok(None) => {
            keys.fault(&[key], &format!("this host has no {what} {name:?}: make it, or write another name"))
        }
        Err(error) => keys.fault(&[key], &format!("the {what} {name:?} cannot be looked up: {error}")),
    }
}
