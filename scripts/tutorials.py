#!/usr/bin/python3
"""Runs the commands of tutorials, and compares what they print with what the page shows.

usage: tutorials.py PROGRAMS PAGE...     PROGRAMS: the folder of signalbox, signalboxd and signalbox-lab; as root

A block of code of the kind `console` has commands behind `$ `, and below each what it prints. Each line shown has to be printed, in this order;
`…` stands for lines that are left out. Numbers that differ from run to run are not compared: times, identifiers, process numbers. A block after
`<!-- file: NAME -->` is written to that file. All commands of a page run in one shell, in a folder of their own with the examples in it.
`<!-- in: NODE of LAB -->` makes the lab and gives the page a shell in its node, for pages whose commands are for a node of one's own.
`<!-- machines -->` makes h1, r1, r2 and h2, a chain of machines without daemons, each with a network, /etc and /run/signalbox of its own. Then
a command stands behind `r1$ `, and a file is that of `<!-- file: NAME on r1 r2 -->`.
"""
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 180
CHANGING = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+", "DATE"),
    (r"\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b", "ID"),
    (r"\b(\d+(\.\d+)?(us|ms|s|m|h))+\b", "TIME"),
    (r"\bport (3[2-9]|4\d|5\d|6[0-5])\d{3}\b", "port N"),
    (r"\s+", " "),
]


def comparable(line):
    for pattern, name in CHANGING:
        line = re.sub(pattern, name, line)
    return line.strip()


def blocks(page):
    """The file and its machines or None, the kind and the lines of each block of code, and the number of its first line."""
    name, kind, lines, first = None, None, [], 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if kind is None:
            mark = re.fullmatch(r"<!-- file: (\S+)(?: on ([\w ]+))? -->", line)
            if mark:
                name = mark.groups()
            elif line and not line.startswith("```"):
                name = None
            if line.startswith("```"):
                kind, lines, first = line[3:].strip(), [], number + 1
        elif line == "```":
            yield name, kind, lines, first
            name, kind = None, None
        else:
            lines.append(line)


def commands(lines, first):
    """Each command with its machine, the lines that it prints, and its place."""
    found = []
    for number, line in enumerate(lines, first):
        prompt = re.match(r"(\w*)\$ ", line)
        if prompt:
            found.append((number, [line[prompt.end():]], [], prompt.group(1)))
        elif found and found[-1][1][-1].endswith("\\") and not found[-1][2]:
            found[-1][1].append(line)
        elif found:
            found[-1][2].append(line)
        else:
            raise SystemExit(f"line {number}: a block of commands begins with a command")
    return [(number, "\n".join(command), printed, machine) for number, command, printed, machine in found]


def node_of(page, programs):
    """How to enter the node of a lab that the page asks for, and its environment; the lab stands then."""
    asked = re.search(r"^<!-- in: (\S+) of (\S+) -->$", page.read_text(), re.MULTILINE)
    if asked is None:
        return [], {}
    name, lab = asked.groups()
    up = subprocess.run([f"{programs}/signalbox", "lab", "up", lab, "--json"], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    [node] = [node for node in json.loads(up.stdout)["nodes"] if node["name"] == name]
    return ["nsenter", f"--net=/run/netns/{node['namespace']}", "bash"], {"SIGNALBOX_SOCKET": node["socket"]}


class Shell:
    def __init__(self, folder, programs, enter, variables):
        environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"} | variables
        self.configuration = variables.get("SIGNALBOX_SOCKET", "").replace(".sock", ".toml")
        self.process = subprocess.Popen(
            enter or ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        # A job is a group of processes, as in a terminal, so that `kill %1` ends all of it.
        print("set -m", file=self.process.stdin, flush=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def next(self, end):
        try:
            return self.lines.get(timeout=max(end - time.monotonic(), 0.01))
        except queue.Empty:
            return None

    def run(self, command, shown):
        """Runs a command; gives what went wrong."""
        if self.configuration:
            command = command.replace("/etc/signalbox/signalboxd.toml", self.configuration)
        # The input of the shell is these commands, and nobody else may read them.
        print(f"{{ {command}\n}} </dev/null\necho END OF COMMAND $?", file=self.process.stdin, flush=True)
        wanted = [comparable(line) for line in shown if line.strip() and line.strip() != "…"]
        printed, ended, end = [], False, time.monotonic() + PATIENCE
        # What a job in the background prints may come after the prompt.
        while wanted or not ended:
            line = self.next(end)
            if line is None:
                what = f"not printed: {wanted[0]}" if ended else "it did not end"
                return "\n".join([what, "printed:", *printed])
            if line.startswith("END OF COMMAND "):
                ended = True
                status = line.removeprefix("END OF COMMAND ")
                if not wanted and status not in ("0", "1"):
                    return "\n".join([f"status {status}", *printed])
                continue
            printed.append(line)
            if wanted and comparable(line) == wanted[0]:
                wanted.pop(0)
        return None

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        # What a page left in the background, too: jobs have process groups in this session.
        for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid:
                    os.kill(int(entry.parent.name), signal.SIGTERM)
            except OSError:
                pass


# The ends of each link with their addresses, and what lies behind the routers.
LINKS = [
    ("h1", "eth0", "192.0.2.2/24", "r1", "eth0", "192.0.2.1/24"),
    ("r1", "eth1", "203.0.113.1/24", "r2", "eth0", "203.0.113.2/24"),
    ("r2", "eth1", "198.51.100.1/24", "h2", "eth0", "198.51.100.2/24"),
]
ROUTES = {"h1": "192.0.2.1", "r1": "203.0.113.2", "r2": "203.0.113.1", "h2": "198.51.100.1"}


class Machines:
    """Machines without daemons, and a shell in each."""

    def __init__(self, folder, programs):
        def call(*command):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        for name in ROUTES:
            call("ip", "netns", "add", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
        for left, left_end, left_address, right, right_end, right_address in LINKS:
            call("ip", "link", "add", left_end, "netns", left, "type", "veth", "peer", right_end, "netns", right)
            for name, end, address in (left, left_end, left_address), (right, right_end, right_address):
                call("ip", "-n", name, "addr", "add", address, "dev", end)
                call("ip", "-n", name, "link", "set", end, "up")
        for name, gateway in ROUTES.items():
            call("ip", "-n", name, "route", "add", "default", "via", gateway)
            call("ip", "netns", "exec", name, "sysctl", "-q", "-w", f"net.ipv4.ip_forward={int(name.startswith('r'))}")
        self.shells = {name: Shell(folder, programs, self.enter(folder, name), {}) for name in ROUTES}

    @staticmethod
    def enter(folder, name):
        own = f"{folder}/{name}"
        # An overlay needs a file system for its upper part that is none itself.
        inside = f"""
            mkdir {own}
            mount -t tmpfs {name} {own}
            mkdir {own}/etc {own}/work
            mount -t overlay -o lowerdir=/etc,upperdir={own}/etc,workdir={own}/work {name} /etc
            mkdir -p /etc/signalbox
            mount -t tmpfs {name} /run/signalbox
            exec bash
        """
        return ["nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--propagation", "private", "bash", "-ec", inside]

    def write(self, name, text, machines):
        for machine in machines.split():
            self.shells[machine].run(f"cat >{name} <<'END OF FILE'\n{text}END OF FILE", [])

    def end(self):
        for shell in self.shells.values():
            shell.end()
        for name in ROUTES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def run(page, programs):
    """The number of commands of a page, all of which did what the page says."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "examples").symlink_to(ROOT / "examples")
        if "<!-- machines -->" in page.read_text().splitlines():
            machines = Machines(folder, programs)
            shells = machines.shells
        else:
            machines, shells = None, {"": Shell(folder, programs, *node_of(page, programs))}
        try:
            for file, kind, lines, first in blocks(page):
                if file is not None:
                    name, on = file
                    text = "\n".join(lines) + "\n"
                    if on:
                        machines.write(name, text, on)
                    else:
                        (pathlib.Path(folder) / name).write_text(text)
                elif kind == "console":
                    for number, command, shown, machine in commands(lines, first):
                        wrong = shells[machine].run(command, shown)
                        if wrong:
                            sys.exit(f"{page}, line {number}: {command}\n{wrong}")
                        count += 1
        finally:
            if machines:
                machines.end()
            else:
                shells[""].end()
            subprocess.run([f"{programs}/signalbox", "lab", "down", "--all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return count


if __name__ == "__main__":
    programs, *pages = sys.argv[1:]
    for page in map(pathlib.Path, pages):
        count = run(page, programs)
        if not count:
            sys.exit(f"{page} has no commands")
        print(f"{page}: {count} commands do what the page says", flush=True)
