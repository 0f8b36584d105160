//! Links between namespaces, their addresses, routes, rates and losses, from which the lab and the tests build
//! networks.
//!
//! The module uses the tools `ip`, `tc` and `nft`: making a network is no hot path (3 ms a step), and when a step fails
//! the user sees a command to try by hand and the tool's own message.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use signalbox_core::node::Prefix;

use crate::netns::Namespace;
use crate::sys;

/// A failed step: the command as a user would type it, and its error output.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` failed: {said}")]
pub struct TopologyError {
    /// The command, or a description of the attempt.
    pub command: String,
    /// The message of the tool or the kernel.
    pub said: String,
}

type Result<T> = std::result::Result<T, TopologyError>;

/// Joins two namespaces by a link with the interface `name_a` at one end and `name_b` at the other, both
/// down.
///
/// # Errors
/// A name is in use or too long (15 characters are allowed).
pub fn create_veth(a: &Namespace, name_a: &str, b: &Namespace, name_b: &str) -> Result<()> {
    run(
        "ip",
        &[
            "link",
            "add",
            "name",
            name_a,
            "netns",
            a.name(),
            "type",
            "veth",
            "peer",
            "name",
            name_b,
            "netns",
            b.name(),
        ],
    )
}

/// Removes an interface; the other end of a veth goes with it.
///
/// # Errors
/// There is no interface of that name.
pub fn delete_link(namespace: &Namespace, interface: &str) -> Result<()> {
    ip(namespace, &["link", "delete", "dev", interface])
}

/// Marks an interface with a text that `ip link` shows (at most 255 octets).
///
/// # Errors
/// There is no such interface.
pub fn set_alias(namespace: &Namespace, interface: &str, alias: &str) -> Result<()> {
    ip(namespace, &["link", "set", "dev", interface, "alias", alias])
}

/// Switches an interface on or off.
///
/// # Errors
/// There is no such interface.
pub fn set_up(namespace: &Namespace, interface: &str, up: bool) -> Result<()> {
    ip(namespace, &["link", "set", "dev", interface, if up { "up" } else { "down" }])
}

/// Routes the packets that a rule of nftables gives `mark` to a TUN device, which is made for it. `matching` describes the
/// packets in the language of nft. The owner of the file reads them, and writes packets that come in by the device.
///
/// # Errors
/// TUN devices or marks are not available, or the name is in use.
pub fn divert_to_tun(
    namespace: &Namespace,
    device: &str,
    mark: u32,
    matching: &str,
    queue: u32,
) -> Result<fs::File> {
    let made = namespace.run(|| sys::tun::open(device)).and_then(|file| file);
    let file = made.map_err(|error| failed(format!("make the TUN device {device}"), &error))?;
    let mark = mark.to_string();
    ip(namespace, &["link", "set", "dev", device, "txqueuelen", &queue.to_string(), "up"])?;
    ip(namespace, &["route", "add", "default", "dev", device, "table", &mark])?;
    ip(namespace, &["rule", "add", "fwmark", &mark, "lookup", &mark])?;
    let rule = format!(
        "table ip {device} {{ chain divert {{ type filter hook prerouting priority mangle; {matching} meta mark set {mark}; }}; }}"
    );
    run("ip", &["netns", "exec", namespace.name(), "nft", &rule])?;
    Ok(file)
}

/// Sets the largest IP packet that an interface carries, in octets.
///
/// # Errors
/// There is no such interface, or it cannot carry packets of that size.
pub fn set_mtu(namespace: &Namespace, interface: &str, mtu: u32) -> Result<()> {
    ip(namespace, &["link", "set", "dev", interface, "mtu", &mtu.to_string()])
}

/// Adds an address to an interface, usable at once (no duplicate address detection).
///
/// # Errors
/// The interface has the address already.
pub fn add_address(namespace: &Namespace, interface: &str, address: IpAddr, prefix_len: u8) -> Result<()> {
    let address_and_length = format!("{address}/{prefix_len}");
    let mut arguments = vec!["address", "add", &address_and_length, "dev", interface];
    if address.is_ipv6() {
        arguments.push("nodad");
    }
    ip(namespace, &arguments)
}

/// Adds a route, or replaces the one to the same destinations.
///
/// # Errors
/// The gateway cannot be reached, or the interface is down.
pub fn add_route(
    namespace: &Namespace,
    dst: Prefix,
    gateway: Option<IpAddr>,
    interface: Option<&str>,
) -> Result<()> {
    let dst = format!("{}/{}", dst.addr, dst.len);
    let gateway = gateway.map(|gateway| gateway.to_string());
    let mut arguments = vec!["route", "replace", &dst];
    if let Some(gateway) = &gateway {
        arguments.extend(["via", gateway]);
    }
    if let Some(interface) = interface {
        arguments.extend(["dev", interface]);
    }
    ip(namespace, &arguments)
}

/// Removes the route to `dst`.
///
/// # Errors
/// There is no such route.
pub fn delete_route(namespace: &Namespace, dst: Prefix) -> Result<()> {
    let family = if dst.addr.is_ipv6() { "-6" } else { "-4" };
    ip(namespace, &[family, "route", "delete", &format!("{}/{}", dst.addr, dst.len)])
}

/// Sets a kernel parameter of the namespace, named as in `sysctl`: `net.ipv4.ip_forward`. Interfaces whose
/// names hold dots need slashes: `net/ipv4/conf/eth0.1/rp_filter`.
///
/// # Errors
/// There is no such parameter.
pub fn set_sysctl(namespace: &Namespace, key: &str, value: &str) -> Result<()> {
    let relative = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    let written =
        namespace.run(|| fs::write(format!("/proc/sys/{relative}"), value)).and_then(|result| result);
    written.map_err(|error| failed(format!("sysctl -w {key}={value}"), &error))
}

/// Makes the namespace a router of both families.
///
/// # Errors
/// The kernel lacks one of the families.
pub fn set_forwarding(namespace: &Namespace, on: bool) -> Result<()> {
    let value = if on { "1" } else { "0" };
    set_sysctl(namespace, "net.ipv4.ip_forward", value)?;
    set_sysctl(namespace, "net.ipv6.conf.all.forwarding", value)
}

/// Limits what leaves an interface to `bits_per_second` (token bucket of 10 ms, at least one full packet, and
/// a queue of 50 ms).
///
/// # Errors
/// The kernel has no TBF.
pub fn set_rate(namespace: &Namespace, interface: &str, bits_per_second: u64) -> Result<()> {
    let burst = (bits_per_second / 8 / 100).max(3000);
    tc(
        namespace,
        &[
            "qdisc",
            "replace",
            "dev",
            interface,
            "root",
            "tbf",
            "rate",
            &format!("{bits_per_second}bit"),
            "burst",
            &burst.to_string(),
            "latency",
            "50ms",
        ],
    )
}

/// Drops `percent` (0–100, in hundredths) of the IP packets that come in by an interface, at random. Neighbor
/// discovery and ARP are excepted, because their loss would delay everything by seconds. 0 removes the loss.
///
/// # Errors
/// The kernel lacks nftables or its number generator.
pub fn set_loss(namespace: &Namespace, interface: &str, percent: f64) -> Result<()> {
    let of_ten_thousand = (percent.clamp(0.0, 100.0) * 100.0).round();
    // Each interface has its own table, so that changes of one leave the others alone.
    let table = format!("signalbox_loss_{}", interface.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    let mut script = format!("table netdev {table}\ndelete table netdev {table}\n");
    if of_ten_thousand > 0.0 {
        let drop = match of_ten_thousand {
            10_000.0.. => "drop".to_owned(), // nft refuses a comparison that is always true
            share => format!("numgen random mod 10000 < {share} drop"),
        };
        script.push_str(&format!(
            "table netdev {table} {{ chain ingress {{ \
             type filter hook ingress device \"{interface}\" priority 0; policy accept;\n\
             icmpv6 type {{ 133, 134, 135, 136, 137 }} accept\n\
             meta protocol ip {drop}\nmeta protocol ip6 {drop}\n}}\n}}\n"
        ));
    }
    nft(namespace, &script)
}

/// Drops each UDP packet to `port` that enters by an interface, or lets them pass again. The namespace then acts as a
/// node that filters signaling out.
///
/// # Errors
/// The kernel lacks nftables.
pub fn set_blocked(namespace: &Namespace, interface: &str, port: u16, blocked: bool) -> Result<()> {
    let table = format!("signalbox_block_{}", interface.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    let mut script = format!("table netdev {table}\ndelete table netdev {table}\n");
    if blocked {
        script.push_str(&format!(
            "table netdev {table} {{ chain ingress {{ \
             type filter hook ingress device \"{interface}\" priority 0; policy accept; udp dport {port} drop\n}}\n}}\n"
        ));
    }
    nft(namespace, &script)
}

/// Waits until every enabled interface has carrier and every address is usable. Up to a second after both ends of a
/// link are up, the kernel still drops what is sent.
///
/// # Errors
/// The state is not reached after `timeout`.
pub fn settle(namespace: &Namespace, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let links = output("ip", &["-n", namespace.name(), "-o", "link", "show", "up"])?;
        // Tunnels have no carrier and stay in the state UNKNOWN.
        let carries = |link: &str| link.contains("state UP") || link.contains("state UNKNOWN");
        let waiting = links.lines().find(|link| !link.contains("LOOPBACK") && !carries(link));
        let tentative = output("ip", &["-n", namespace.name(), "-6", "-o", "address", "show", "tentative"])?;
        let Some(waiting) = waiting.or(tentative.lines().next()) else { return Ok(()) };
        if Instant::now() >= deadline {
            let command = format!("waiting for the links of {}", namespace.name());
            return Err(TopologyError { command, said: waiting.to_owned() });
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the kernel has netem, determined by using it in a namespace made for the test.
#[must_use]
pub fn has_netem() -> bool {
    let name = format!("signalbox-probe-{}", std::process::id());
    let Ok(scratch) = Namespace::create(&name) else { return false };
    let worked = set_netem(&scratch, "lo", Duration::from_millis(1), 0.0).is_ok();
    // A probe namespace that stays behind can be found by its name.
    let _ = scratch.delete();
    worked
}

/// Delays the packets that leave an interface and drops `loss_percent` of them, by netem.
///
/// # Errors
/// The kernel lacks netem ([`has_netem`]).
pub fn set_netem(namespace: &Namespace, interface: &str, delay: Duration, loss_percent: f64) -> Result<()> {
    let delay = format!("{}us", delay.as_micros());
    let loss = format!("{loss_percent}%");
    tc(namespace, &["qdisc", "replace", "dev", interface, "root", "netem", "delay", &delay, "loss", &loss])
}

/// Switches checksum and segmentation offload of an interface off. Captures then hold packets as they would be on a
/// wire, and a relay forwards frames that the far end accepts.
///
/// # Errors
/// The interface does not allow it.
pub fn disable_offload(namespace: &Namespace, interface: &str) -> Result<()> {
    let done = namespace.run(|| sys::ethtool::disable_offload(interface)).and_then(|result| result);
    done.map_err(|error| failed(format!("ethtool -K {interface} tx off gso off gro off tso off"), &error))
}

/// Runs nft inside a namespace with `script` as its input.
///
/// # Errors
/// The error output of nft.
pub fn nft(namespace: &Namespace, script: &str) -> Result<()> {
    let command = || format!("nft -f - (in {}): {script}", namespace.name());
    let mut child = namespace
        .spawn(
            Command::new(program("nft")?)
                .args(["-f", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped()),
        )
        .map_err(|error| failed(command(), &error))?;
    if let Some(mut input) = child.stdin.take() {
        // If nft ends early, its own message gives the reason.
        let _ = io::Write::write_all(&mut input, script.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(command(), &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(TopologyError { command: command(), said })
}

fn ip(namespace: &Namespace, arguments: &[&str]) -> Result<()> {
    run("ip", &[&["-n", namespace.name()], arguments].concat())
}

fn tc(namespace: &Namespace, arguments: &[&str]) -> Result<()> {
    run("tc", &[&["-n", namespace.name()], arguments].concat())
}

fn run(tool: &str, arguments: &[&str]) -> Result<()> {
    output(tool, arguments).map(drop)
}

fn output(tool: &str, arguments: &[&str]) -> Result<String> {
    let command = || format!("{tool} {}", arguments.join(" "));
    let output = Command::new(program(tool)?)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(command(), &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(TopologyError { command: command(), said })
}

fn program(tool: &str) -> Result<std::path::PathBuf> {
    sys::find_program(tool).ok_or_else(|| TopologyError {
        command: tool.to_owned(),
        said: "not installed: apt-get install iproute2 nftables".to_owned(),
    })
}

fn failed(command: String, error: &io::Error) -> TopologyError {
    TopologyError { command, said: error.to_string() }
}
