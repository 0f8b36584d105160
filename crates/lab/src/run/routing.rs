//! Routing programs of the machine, FRR or BIRD, which find the routes of nodes by OSPF or IS-IS instead of the lab.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, chown};
use signalbox_linux::netns::Namespace;

use crate::language::Routing;
use crate::plan::places;
use crate::plan::{Plan, PlannedNode};
use crate::run::{kernel, wait};

/// The time until all programs together have found all routes.
const CONVERGES: Duration = Duration::from_secs(60);

/// The time that a program has to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// The cost of an interface if no step sets another one.
const COST: u16 = 10;

/// Where the distribution installs FRR's programs, which are in no directory of `PATH`.
const FRR: &str = "/usr/lib/frr";

/// The routing programs of one node.
#[derive(Debug)]
pub(crate) struct Router {
    node: usize,
    kind: Routing,
    directory: PathBuf,
    namespace: Namespace,
    programs: Vec<Child>,
    /// The costs of its interfaces, where they are not [`COST`].
    costs: BTreeMap<String, u16>,
}

impl Router {
    /// Starts the routing programs of a node. Its routes come later.
    pub(crate) fn start(plan: &Plan, node: usize, kind: Routing) -> Result<Self> {
        let planned = &plan.nodes[node];
        let directory = places::directory(&plan.name).join(format!("{}.routing", planned.name));
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let namespace = kernel::namespace(&planned.namespace)?;
        let mut router =
            Self { node, kind, directory, namespace, programs: Vec::new(), costs: BTreeMap::new() };
        router.launch(plan).with_context(|| format!("cannot start the routing of {}", planned.name))?;
        Ok(router)
    }

    /// Ends the programs as their operator does, and starts them again.
    pub(crate) fn restart(&mut self, plan: &Plan) -> Result<()> {
        self.end()?;
        self.launch(plan)
    }

    /// Sets the cost of the interface to a neighbor.
    pub(crate) fn set_cost(&mut self, plan: &Plan, interface: &str, cost: u16) -> Result<()> {
        self.costs.insert(interface.to_owned(), cost);
        self.write(plan)?;
        match self.kind {
            Routing::Bird => {
                for program in &self.programs {
                    signal(program, Signal::SIGHUP)?;
                }
                Ok(())
            }
            Routing::Frr | Routing::FrrIsis => {
                let command = if self.kind == Routing::FrrIsis { "isis metric" } else { "ip ospf cost" };
                let [interface, cost] = [format!("interface {interface}"), format!("{command} {cost}")];
                let place = self.directory.display().to_string();
                let words =
                    ["--vty_socket", &place, "-c", "configure terminal", "-c", &interface, "-c", &cost];
                kernel::output(&self.namespace, "vtysh", &words).map(drop)
            }
        }
    }

    /// The running processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.programs.iter().map(Child::id)
    }

    /// Ends the programs.
    pub(crate) fn end(&mut self) -> Result<()> {
        for program in self.programs.iter().rev() {
            signal(program, Signal::SIGTERM)?;
        }
        for mut program in std::mem::take(&mut self.programs) {
            if !wait::until(GRACE, || program.try_wait().ok().flatten().is_some()) {
                program.kill().and_then(|()| program.wait())?;
            }
        }
        Ok(())
    }

    fn launch(&mut self, plan: &Plan) -> Result<()> {
        self.write(plan)?;
        let place = self.directory.clone();
        let path = |name: &str| place.join(name).display().to_string();
        match self.kind {
            Routing::Bird => {
                let words = ["-f", "-c", &path("bird.conf"), "-s", &path("bird.sock")];
                self.spawn(Path::new("bird"), &words, "bird.sock")
            }
            Routing::Frr | Routing::FrrIsis => {
                let protocol = if self.kind == Routing::FrrIsis { "isisd" } else { "ospfd" };
                for program in ["zebra", protocol] {
                    let [file, number] = ["conf", "pid"].map(|kind| path(&format!("{program}.{kind}")));
                    let [socket, here] = [path("zebra.sock"), place.display().to_string()];
                    // No TCP port for commands.
                    let words = ["-f", &file, "-i", &number, "-z", &socket, "--vty_socket", &here, "-P", "0"];
                    let ready =
                        if program == "zebra" { "zebra.sock".to_owned() } else { format!("{program}.vty") };
                    self.spawn(&Path::new(FRR).join(program), &words, &ready)?;
                }
                Ok(())
            }
        }
    }

    /// Starts one program and waits until its socket `ready` exists.
    fn spawn(&mut self, program: &Path, words: &[&str], ready: &str) -> Result<()> {
        let ready = self.directory.join(ready);
        match fs::remove_file(&ready) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let log = self.directory.join("log");
        let writer = File::options().create(true).append(true).open(&log)?;
        let errors = writer.try_clone()?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(writer).stderr(errors);
        let child = self.namespace.spawn(&mut command);
        let mut child =
            child.with_context(|| format!("cannot start {}; install frr or bird2", program.display()))?;
        let mut ended = false;
        wait::until(CONVERGES, || {
            ended = child.try_wait().ok().flatten().is_some();
            ended || ready.exists() || wait::check().is_err()
        });
        if ended {
            let text = fs::read_to_string(&log).unwrap_or_default();
            bail!("{} ended at once: {}", program.display(), text.trim());
        }
        self.programs.push(child);
        Ok(())
    }

    fn write(&self, plan: &Plan) -> Result<()> {
        let node = &plan.nodes[self.node];
        let files = match self.kind {
            Routing::Bird => vec![("bird.conf", bird(node, &self.costs))],
            Routing::Frr => vec![("zebra.conf", String::new()), ("ospfd.conf", ospfd(node, &self.costs))],
            Routing::FrrIsis => {
                vec![("zebra.conf", String::new()), ("isisd.conf", isisd(self.node, node, &self.costs))]
            }
        };
        for (name, text) in files {
            let place = self.directory.join(name);
            fs::write(&place, text).with_context(|| place.display().to_string())?;
        }
        // FRR's programs give up root before they write here.
        if self.kind != Routing::Bird
            && let Some(user) = User::from_name("frr")?
        {
            chown(&self.directory, Some(user.uid), Some(user.gid))?;
        }
        Ok(())
    }
}

impl Router {
    /// Lets the routing programs go on after the end of this process.
    pub(crate) fn leave(mut self) {
        self.programs.clear();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // What a failure left; `down` reports what it cannot end.
        let _ = self.end();
    }
}

/// Waits until each node with a routing program has the shortest way to each network.
pub(crate) fn converge(plan: &Plan) -> Result<()> {
    for node in plan.nodes.iter().filter(|node| node.routing.is_some()) {
        let namespace = kernel::namespace(&node.namespace)?;
        let missing = || {
            node.routes.iter().find(|route| {
                let shown = kernel::output(&namespace, "ip", &["route", "show", &route.to.to_string()]);
                !shown.is_ok_and(|text| text.contains(&format!("via {} ", route.via)))
            })
        };
        if !wait::until(CONVERGES, || missing().is_none() || wait::check().is_err()) {
            let to = missing().map(|route| route.to.to_string()).unwrap_or_default();
            bail!("the routing program of {} finds no route to {to} within {CONVERGES:?}", node.name);
        }
        wait::check()?;
    }
    Ok(())
}

/// Sends a signal to a child that was not waited for, so that its number belongs to no other process.
fn signal(program: &Child, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(program.id())?), signal)?)
}

/// The identifier of a router in OSPF: its first address.
fn identifier(node: &PlannedNode) -> String {
    node.interfaces.first().map_or_else(|| "192.0.2.1".to_owned(), |it| it.address.address.to_string())
}

fn bird(node: &PlannedNode, costs: &BTreeMap<String, u16>) -> String {
    let mut text = format!(
        "router id {};\nlog stderr all;\nprotocol device {{ scan time 1; }}\n\
         protocol kernel {{ merge paths on; ipv4 {{ import none; export where source ~ [ RTS_OSPF, RTS_OSPF_IA ]; }}; }}\n\
         protocol ospf v2 {{ ecmp on; ipv4 {{ import all; export none; }}; area 0 {{\n",
        identifier(node)
    );
    for interface in &node.interfaces {
        let cost = costs.get(&interface.name).unwrap_or(&COST);
        let _ = writeln!(
            text,
            "interface \"{}\" {{ type ptp; hello 1; dead count 4; cost {cost}; }};",
            interface.name
        );
    }
    text + "}; }\n"
}

fn ospfd(node: &PlannedNode, costs: &BTreeMap<String, u16>) -> String {
    let mut text = String::new();
    for interface in &node.interfaces {
        let cost = costs.get(&interface.name).unwrap_or(&COST);
        let _ = writeln!(
            text,
            "interface {}\n ip ospf network point-to-point\n ip ospf hello-interval 1\n ip ospf dead-interval 4\n \
             ip ospf cost {cost}\n!",
            interface.name
        );
    }
    let _ = writeln!(
        text,
        "router ospf\n ospf router-id {}\n network 0.0.0.0/0 area 0\n timers throttle spf 0 50 500\n \
         timers throttle lsa all 0\n timers lsa min-arrival 0",
        identifier(node)
    );
    text
}

/// All routers are of one area and of level 2. `number` is that of the node: its system identifier.
fn isisd(number: usize, node: &PlannedNode, costs: &BTreeMap<String, u16>) -> String {
    let mut text = String::new();
    for interface in &node.interfaces {
        let cost = costs.get(&interface.name).unwrap_or(&COST);
        let _ = writeln!(
            text,
            "interface {}\n ip router isis lab\n isis network point-to-point\n isis hello-interval 1\n isis hello-multiplier 4\n \
             isis metric {cost}\n!",
            interface.name
        );
    }
    let _ = writeln!(
        text,
        "router isis lab\n net 49.0001.0000.0000.{:04x}.00\n is-type level-2-only\n metric-style wide\n lsp-gen-interval 1\n \
         spf-interval 1",
        number + 1
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interface_of_a_node_is_in_the_configuration_with_its_cost() {
        let text = "version = 2\nname = \"x\"\ndescription = \"\"\ntopology.chain = [\"h1\", \"r1\", \"h2\"]\n\
                    nodes.r1.routing = \"frr\"\n";
        let scenario = crate::language::read("x.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let plan = Plan::new(&scenario);
        let costs = BTreeMap::from([("to-h2".to_owned(), 77)]);
        let node = &plan.nodes[1];
        let bird = bird(node, &costs);
        assert!(bird.contains("router id 10.0.1.2;"), "{bird}");
        assert!(
            bird.contains("interface \"to-h1\" { type ptp; hello 1; dead count 4; cost 10; };"),
            "{bird}"
        );
        assert!(
            bird.contains("interface \"to-h2\" { type ptp; hello 1; dead count 4; cost 77; };"),
            "{bird}"
        );
        let ospfd = ospfd(node, &costs);
        assert!(ospfd.contains("interface to-h2\n"), "{ospfd}");
        assert!(ospfd.contains(" ip ospf cost 77\n"), "{ospfd}");
        assert!(ospfd.contains(" ospf router-id 10.0.1.2\n"), "{ospfd}");
        let isisd = isisd(1, node, &costs);
        assert!(isisd.contains("interface to-h2\n ip router isis lab\n"), "{isisd}");
        assert!(isisd.contains(" isis metric 77\n"), "{isisd}");
        assert!(isisd.contains(" net 49.0001.0000.0000.0002.00\n"), "{isisd}");
    }
}
