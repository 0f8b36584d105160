//! The user as which the daemon runs.

use nix::unistd;

use crate::error::OpenError;

/// The user and group `nobody` of Linux, also where no file names it.
pub(crate) const NOBODY: u32 = 65_534;

/// A user with its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name, for messages.
    pub name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

impl User {
    /// The user with a name or number.
    ///
    /// # Errors
    /// There is no such user.
    pub fn find(name: &str) -> Result<Self, OpenError> {
        let system = |error: nix::Error| OpenError::system("reading the users of this system", &error.into());
        let found = match name.parse::<u32>() {
            Ok(uid) => unistd::User::from_uid(uid.into()).map_err(system)?,
            Err(_) => unistd::User::from_name(name).map_err(system)?,
        };
        match (found, name.parse::<u32>()) {
            (Some(user), _) => Self::of(&user),
            // A number is enough where nothing names it, as in a container.
            (None, Ok(uid)) => Ok(Self { name: name.to_owned(), uid, gid: uid, groups: vec![uid] }),
            (None, Err(_)) => Err(OpenError::new(
                "no-such-user",
                format!("there is no user {name:?}"),
                format!("create it (useradd --system --no-create-home {name}), or set privileges.user"),
            )),
        }
    }

    /// The user `signalbox`, or `nobody` where there is no such user.
    ///
    /// # Errors
    /// The users of this system cannot be read.
    pub fn usual() -> Result<Self, OpenError> {
        match Self::find("signalbox") {
            Err(error) if error.id == "no-such-user" => {
                Ok(Self { name: "nobody".to_owned(), uid: NOBODY, gid: NOBODY, groups: vec![NOBODY] })
            }
            found => found,
        }
    }

    /// Whether the user is root.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the user is `nobody`, as which processes of different owners run.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.uid == NOBODY
    }

    /// Whether this user namespace has the user and the group. The root of a namespace without it is not the machine's.
    pub(super) fn exists_here(&self) -> bool {
        [("uid_map", self.uid), ("gid_map", self.gid)].into_iter().all(|(file, number)| {
            let map = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
            map.lines().any(|line| covers(line, number))
        })
    }

    /// The numbers of user and group.
    #[must_use]
    pub const fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    fn of(user: &unistd::User) -> Result<Self, OpenError> {
        let name = std::ffi::CString::new(user.name.as_str())
            .map_err(|error| OpenError::system("the name of a user", &error.into()))?;
        let groups = unistd::getgrouplist(&name, user.gid)
            .map_err(|error| OpenError::system("reading the groups of a user", &error.into()))?;
        Ok(Self {
            name: user.name.clone(),
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(unistd::Gid::as_raw).collect(),
        })
    }
}

/// Whether a line of a map, first number inside, first number outside and count, has a number.
fn covers(line: &str, number: u32) -> bool {
    let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
    let (Some(Some(first)), Some(Some(count))) = (fields.next(), fields.nth(1)) else { return false };
    (first..first.saturating_add(count)).contains(&u64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_one_user_has_no_other() {
        assert!(covers("         0       1000          1", 0));
        assert!(!covers("         0       1000          1", 65_534));
        assert!(covers("         0          0 4294967295", 65_534));
        assert!(!covers("", 0));
        assert!(User::find("65534").unwrap().exists_here());
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = User::find("root").unwrap();
        assert!(root.is_root());
        assert_eq!(User::find("0").unwrap(), root);
        assert_eq!(User::find("4000000").unwrap().ids(), (4_000_000, 4_000_000));
        let error = User::find("nobody-of-this-name").unwrap_err().to_string();
        assert!(error.starts_with("no-such-user") && error.contains("useradd"), "{error}");
        assert!(!User::usual().unwrap().is_root());
    }
}
