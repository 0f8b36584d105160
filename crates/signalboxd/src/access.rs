//! Which calls a user of this host may make: `[[control.access]]`.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use signalbox_config::{Access, Role};
use signalbox_linux::accounts;
use tonic::Status;
use tonic::codegen::http;

use crate::api::errors::Reason;
use crate::connection::Peer;

/// The roles of users; cheap to clone, and replaced by a reload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roles(Arc<RwLock<Arc<Table>>>);

/// Who has which role.
#[derive(Debug, Default)]
struct Table {
    /// `None`: every user may make every call.
    entries: Option<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    role: Role,
    users: BTreeSet<u32>,
    group: Option<u32>,
}

/// The process at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Roles {
    /// The roles that a configuration gives.
    pub(crate) fn new(access: &[Access]) -> Self {
        let roles = Self::default();
        roles.set(access);
        roles
    }

    /// Replaces the roles. A name that the name service does not find has no role, and is logged.
    pub(crate) fn set(&self, access: &[Access]) {
        let entries = (!access.is_empty()).then(|| access.iter().filter_map(entry).collect());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Table { entries });
    }

    /// Refuses a request whose sender has no role for it.
    pub(crate) fn check<B>(&self, request: &http::Request<B>) -> Result<(), Status> {
        let caller = request.extensions().get::<Peer>().and_then(|peer| peer.caller);
        self.table().check(request.uri().path(), caller)
    }

    /// Whether a user may do everything: root, the user of the daemon, and those with the role to administer.
    pub(crate) fn is_privileged(&self, caller: Caller) -> bool {
        caller.is_own() || self.table().has(caller, Role::Administer)
    }

    fn table(&self) -> Arc<Table> {
        // It is replaced as a whole, so that a poisoned one is as good as any.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn check(&self, path: &str, caller: Option<Caller>) -> Result<(), Status> {
        if self.entries.is_none() {
            return Ok(());
        }
        let (Some(needed), Some(caller)) = (needed(path), caller) else {
            return if needed(path).is_none() { Ok(()) } else { Err(refusal(path, Role::Administer, None)) };
        };
        if caller.is_own() || self.has(caller, needed) {
            return Ok(());
        }
        Err(refusal(path, needed, Some(caller.user)))
    }

    /// Whether a table gives a user a role.
    fn has(&self, caller: Caller, role: Role) -> bool {
        let mut entries = self.entries.iter().flatten();
        entries.any(|entry| entry.is_of(caller) && entry.role.includes(role))
    }
}

impl Caller {
    /// Whether it is root, or the user of the daemon.
    fn is_own(self) -> bool {
        self.user == 0 || Some(self.user) == accounts::own_user()
    }
}

impl Entry {
    fn is_of(&self, caller: Caller) -> bool {
        self.users.contains(&caller.user) || self.group == Some(caller.group)
    }
}

fn refusal(path: &str, needed: Role, user: Option<u32>) -> Status {
    let method = path.rsplit('/').next().unwrap_or_default();
    let user = user.map_or_else(|| "unknown".to_owned(), |user| user.to_string());
    let text = format!(
        "user {user} may not call {method}, which needs the role {needed}: an administrator can give it by \
         [[control.access]] in the daemon's configuration"
    );
    Reason::NoRole.with(text, [("role", needed.to_string()), ("user", user)])
}

/// The role that a method needs, by its verb; `None`: everybody who may open the socket may call it.
pub(crate) fn needed(path: &str) -> Option<Role> {
    let mut parts = path.trim_start_matches('/').split('/');
    let (service, method) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !service.starts_with("signalbox.") {
        // Health and reflection: what the services are, not what they contain.
        return None;
    }
    let is = |verbs: &[&str]| verbs.iter().any(|verb| method.starts_with(verb));
    Some(if is(&["Get", "List", "Watch", "Test", "Check"]) {
        Role::View
    } else if is(&["Reserve", "Query", "Ping", "Session", "Open"]) {
        Role::Request
    } else if is(&["Application", "Client"]) {
        Role::Application
    } else {
        Role::Administer
    })
}

fn entry(access: &Access) -> Option<Entry> {
    let role = access.role?;
    let found = match (&access.user, &access.group) {
        (Some(name), _) => accounts::user(name)
            .map(|user| user.map(|user| Entry { role, users: BTreeSet::from([user]), group: None })),
        (None, Some(name)) => accounts::group(name).and_then(|group| {
            let Some(group) = group else { return Ok(None) };
            let users = accounts::members(group)?.into_iter().collect();
            Ok(Some(Entry { role, users, group: Some(group) }))
        }),
        (None, None) => Ok(None),
    };
    match found {
        Ok(Some(entry)) => Some(entry),
        Ok(None) => {
            tracing::error!(?access, "control.access: no such user or group; no user gets the role");
            None
        }
        Err(error) => {
            tracing::error!(?access, %error, "control.access: the name service failed; no user gets the role");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: &str = "/signalbox.v1.Reservations/Reserve";
    const LIST: &str = "/signalbox.v1.Reservations/ListReservations";
    const DELETE: &str = "/signalbox.v1.Reservations/DeleteReservation";
    const APPLICATION: &str = "/signalbox.gist.v1.Gist/Application";
    const CLIENT: &str = "/signalbox.casp.v1.Casp/Client";
    const HEALTH: &str = "/grpc.health.v1.Health/Check";

    fn table(entries: &[(Option<u32>, Option<u32>, Role)]) -> Table {
        let access = entries.iter().map(|(user, group, role)| Access {
            user: user.map(|user| user.to_string()),
            group: group.map(|group| group.to_string()),
            role: Some(*role),
        });
        let access: Vec<_> = access.collect();
        Table { entries: Some(access.iter().filter_map(entry).collect()) }
    }

    fn may(table: &Table, user: u32, group: u32) -> Vec<&'static str> {
        let allowed = |path: &&str| table.check(path, Some(Caller { user, group })).is_ok();
        [HEALTH, LIST, RESERVE, APPLICATION, CLIENT, DELETE].into_iter().filter(allowed).collect()
    }

    #[test]
    fn a_role_allows_its_verbs() {
        for (role, allowed) in [
            (Role::View, &[HEALTH, LIST][..]),
            (Role::Request, &[HEALTH, LIST, RESERVE]),
            (Role::Application, &[HEALTH, LIST, APPLICATION, CLIENT]),
            (Role::Administer, &[HEALTH, LIST, RESERVE, APPLICATION, CLIENT, DELETE]),
        ] {
            let table = table(&[(Some(4711), None, role), (None, Some(4712), role)]);
            assert_eq!(may(&table, 4711, 1), allowed, "{role}");
            assert_eq!(may(&table, 1, 4712), allowed, "{role}");
            assert_eq!(may(&table, 1, 1), [HEALTH], "{role}: another user");
            assert_eq!(may(&table, 0, 0).len(), 6, "root");
        }
    }

    #[test]
    fn roles_of_several_tables_add_up() {
        let table = table(&[(Some(4711), None, Role::Request), (None, Some(4712), Role::Application)]);
        assert_eq!(may(&table, 4711, 4712), [HEALTH, LIST, RESERVE, APPLICATION, CLIENT]);
    }

    #[test]
    fn without_tables_everybody_who_opens_the_socket_may_call() {
        assert!(Table::default().check(DELETE, None).is_ok());
        assert!(table(&[]).check(LIST, None).is_err(), "the caller is not known");
    }

    #[test]
    fn a_refusal_names_the_role() {
        let status =
            table(&[(Some(4711), None, Role::View)]).check(DELETE, Some(Caller { user: 4711, group: 1 }));
        let status = status.unwrap_err();
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
        assert_eq!(crate::rig::reason(&status), "NO_ROLE");
        let text = "user 4711 may not call DeleteReservation, which needs the role administer: ";
        assert!(status.message().starts_with(text), "{}", status.message());
    }

    /// Every method of the API has a verb that says who may call it; a new method without such a verb is the
    /// administrator's.
    #[test]
    fn every_method_has_a_role() {
        let pool = prost_reflect::DescriptorPool::decode(signalbox_api::DESCRIPTORS).unwrap();
        let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
        let paths =
            methods.map(|method| format!("/{}/{}", method.parent_service().full_name(), method.name()));
        let mut administered: Vec<_> = paths.filter(|path| needed(path) == Some(Role::Administer)).collect();
        administered.sort_unstable();
        let pinholes = "/signalbox.v1.Pinholes/DeletePinhole";
        assert_eq!(
            administered,
            [
                "/signalbox.mapping.v1.Mappings/DeleteMapping",
                "/signalbox.rsvp.v1.Rsvp/DeleteSenders",
                "/signalbox.rsvp.v1.Rsvp/ForgetNeighbor",
                "/signalbox.v1.Node/ReloadConfig",
                pinholes,
                DELETE
            ]
        );
    }
}
