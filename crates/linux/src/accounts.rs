//! Users and groups of this host, by the name service.

use std::io;

use nix::unistd::{Group, User};

/// The number of a user, by name or number; `None`: there is no such user.
///
/// # Errors
/// The name service fails.
pub fn user(name: &str) -> io::Result<Option<u32>> {
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// The number of a group, by name or number; `None`: there is no such group.
///
/// # Errors
/// The name service fails.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// The users that the name service lists as members of a group. A user whose primary group it is need not be among them.
///
/// # Errors
/// The name service fails.
pub fn members(group: u32) -> io::Result<Vec<u32>> {
    let names = Group::from_gid(group.into())?.map(|group| group.mem).unwrap_or_default();
    names.iter().filter_map(|name| user(name).transpose()).collect()
}

/// The user that this process acts as; `None` if it is `nobody`, as whom processes of different owners run.
#[must_use]
pub fn own_user() -> Option<u32> {
    let user = nix::unistd::geteuid().as_raw();
    (user != crate::confine::NOBODY).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_numbers_are_found() {
        assert_eq!((user("root").unwrap(), group("root").unwrap()), (Some(0), Some(0)));
        assert_eq!((user("4711").unwrap(), group("4711").unwrap()), (Some(4711), Some(4711)));
        assert_eq!((user("no-such-user").unwrap(), group("no-such-group").unwrap()), (None, None));
        assert!(members(4_000_000_000).unwrap().is_empty());
    }
}
