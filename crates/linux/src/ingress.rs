//! Interfaces whose packets can have forged sources, as far as the kernel's settings show it.

use std::fs;
use std::path::Path;

const SETTINGS: &str = "/proc/sys/net/ipv4/conf";
const LOOPBACK: &str = "lo";

/// Those of the interfaces at which no reverse path filter of the kernel compares the source of an IPv4 packet with the routes, by
/// the setting `rp_filter`. IPv6 has no such setting.
#[must_use]
pub fn unfiltered(interfaces: &[String]) -> Vec<String> {
    among(Path::new(SETTINGS), interfaces)
}

fn among(settings: &Path, interfaces: &[String]) -> Vec<String> {
    let filters = |name: &str| {
        let text = fs::read_to_string(settings.join(name).join("rp_filter")).ok()?;
        text.trim().parse::<u8>().ok()
    };
    // The larger one of both settings counts.
    if filters("all").is_none_or(|all| all > 0) {
        return Vec::new();
    }
    let open = interfaces.iter().filter(|name| *name != LOOPBACK && filters(name) == Some(0));
    open.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_setting_counts() {
        let settings = std::env::temp_dir().join(format!("sbx-ingress-{}", std::process::id()));
        let set = |name: &str, value: &str| {
            let directory = settings.join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("rp_filter"), value).unwrap();
        };
        let names: Vec<String> = ["lo", "eth0", "eth1.7", "gone"].map(str::to_owned).to_vec();
        for (name, value) in [("all", "0\n"), ("lo", "0\n"), ("eth0", "0\n"), ("eth1.7", "2\n")] {
            set(name, value);
        }
        assert_eq!(among(&settings, &names), ["eth0"]);
        set("eth1.7", "0\n");
        assert_eq!(among(&settings, &names), ["eth0", "eth1.7"]);
        set("all", "1\n");
        assert_eq!(among(&settings, &names), Vec::<String>::new());
        fs::remove_dir_all(&settings).unwrap();
        assert_eq!(among(&settings, &names), Vec::<String>::new(), "nothing is known");
    }
}
