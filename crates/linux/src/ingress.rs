//! Interfaces whose packets can have forged sources, as far as the kernel's settings show it.

use std::collections::BTreeMap;

use crate::netlink;
use crate::sys::interface_index;

const LOOPBACK: &str = "lo";
/// The number that stands for all interfaces.
const ALL: i32 = -1;

/// Those of the interfaces at which no reverse path filter of the kernel compares the source of an IPv4 packet with the routes, by
/// the setting `rp_filter`. IPv6 has no such setting. A process that may not read files learns it, too.
#[must_use]
pub fn unfiltered(interfaces: &[String]) -> Vec<String> {
    let Ok(settings) = netlink::reverse_path_filters() else { return Vec::new() };
    let number = |name: &str| interface_index(name).ok().and_then(|index| i32::try_from(index).ok());
    among(&settings, interfaces, number)
}

fn among(
    settings: &BTreeMap<i32, i32>,
    interfaces: &[String],
    number: impl Fn(&str) -> Option<i32>,
) -> Vec<String> {
    // The larger one of both settings counts.
    if settings.get(&ALL).is_none_or(|all| *all > 0) {
        return Vec::new();
    }
    let off = |name: &str| number(name).and_then(|number| settings.get(&number)) == Some(&0);
    interfaces.iter().filter(|name| *name != LOOPBACK && off(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_setting_counts() {
        let names: Vec<String> = ["lo", "eth0", "eth1.7", "gone"].map(str::to_owned).to_vec();
        let number = |name: &str| {
            [("lo", 1), ("eth0", 2), ("eth1.7", 3)].iter().find(|one| one.0 == name).map(|one| one.1)
        };
        let open = |settings: &[(i32, i32)]| among(&settings.iter().copied().collect(), &names, number);
        assert_eq!(open(&[(ALL, 0), (1, 0), (2, 0), (3, 2)]), ["eth0"]);
        assert_eq!(open(&[(ALL, 0), (1, 0), (2, 0), (3, 0)]), ["eth0", "eth1.7"]);
        assert_eq!(open(&[(ALL, 1), (1, 0), (2, 0), (3, 0)]), Vec::<String>::new());
        assert_eq!(open(&[]), Vec::<String>::new(), "nothing is known");
    }

    #[test]
    fn the_kernel_says_it_of_all_interfaces() {
        let settings = netlink::reverse_path_filters().unwrap();
        assert!(settings.contains_key(&ALL), "{settings:?}");
        let lo = i32::try_from(interface_index(LOOPBACK).unwrap()).unwrap();
        let file = std::fs::read_to_string("/proc/sys/net/ipv4/conf/lo/rp_filter").unwrap();
        assert_eq!(settings.get(&lo), file.trim().parse().ok().as_ref());
    }
}
