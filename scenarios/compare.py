"""The measurements of the scenario compare-protocols, in the standard library alone.

    compare.py reserve SIGNALBOX PROTOCOLS ROUTERS=DESTINATION...
                        at the first host: reserves by each protocol towards each destination, one after the other; then holds one
                        reservation of each towards the last destination until it is killed, and counts what passes the host's link
    compare.py memory SIGNALBOX PROTOCOLS DESTINATION FILE
                        at the first host: reserves many flows over one router by each protocol, and reads what the daemon with this
                        configuration file has grown by
    compare.py watch INTERFACE KEY PROTOCOLS gone|there
                        at a router: prints when the queues of the reservations at an interface went or came, from the moment at which
                        the KEY disappears: a daemon (its configuration file), or an interface from a daemon's routes (FILE:INTERFACE)

The rate of a reservation, and its port, say which protocol made it. Times and packets are those of the kernel. The command's `granted`
ends a set-up; the first packet on the link begins it.
"""

import atexit
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

PROTOCOLS = {"qos": 1, "rsvp": 2, "boomerang": 3, "casp": 4}
PORTS, MANY = 1000, 100
FIRST_RATE = 10
ROUNDS = 3
# The refresh period of all protocols in the scenario, and the one in the table, in seconds.
REFRESH, USUAL = 3, 30
PERIODS = 4
SO_TIMESTAMPNS = 35
ETH_P_ALL, ETH_P_IP = 0x0003, 0x0800


def report(**fields):
    print(json.dumps({"type": "measured", **fields}), flush=True)


def protocol_of(packet):
    """The protocol of an IPv4 packet on a link that carries nothing else than signaling."""
    header, kind = 4 * (packet[0] & 15), packet[9]
    if kind == 46:
        return "rsvp"
    if kind == 1:
        return "boomerang"
    ports = struct.unpack("!HH", packet[header:header + 4])
    return "casp" if any(50003 <= port <= 50005 for port in ports) else "qos"


class Link(threading.Thread):
    """All IPv4 packets of the host's link: when each passed, its protocol and its octets."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.packets = []
        self.start()

    def run(self):
        while True:
            packet, ancillary, _, address = self.socket.recvmsg(65535, 64)
            if address[0] == "lo" or address[1] != ETH_P_IP or not ancillary:
                continue
            seconds, rest = struct.unpack("qq", ancillary[0][2][:16])
            self.packets.append((seconds * 10**6 + rest // 1000, protocol_of(packet), len(packet)))

    def of(self, protocol, since_us):
        return [packet for packet in list(self.packets) if packet[1] == protocol and packet[0] >= since_us]


class Reservation:
    """A reservation that the command holds."""

    def __init__(self, signalbox, protocol, destination, many=()):
        number = PROTOCOLS[protocol]
        options = many or ["--rate", f"{FIRST_RATE + number}mbit"]
        words = [signalbox, "reserve", destination, "--once", "--proto", "udp", "--dport", str(PORTS * (5 + number))]
        self.begin_us = time.time_ns() // 1000
        command = [*words, "--signaling", protocol, "--json", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        for line in self.process.stdout:
            event = json.loads(line)
            if event["type"] == "granted":
                # With several flows the event has no time of its own.
                self.granted_us = event.get("time_unix_us", time.time_ns() // 1000)
                return
            if event["type"] in ("failed", "refused", "lost"):
                break
        sys.exit(f"{protocol} to {destination}: not reserved: {line}")

    def release(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


def reserve(signalbox, protocols, places):
    link = Link()
    for place in places:
        routers, destination = place.split("=")
        for protocol in protocols:
            times, packets, octets = [], [], []
            for _ in range(ROUNDS):
                reservation = Reservation(signalbox, protocol, destination)
                time.sleep(0.3)
                seen = link.of(protocol, reservation.begin_us)
                times.append((reservation.granted_us - seen[0][0]) / 1000)
                packets.append(len(seen))
                octets.append(sum(packet[2] for packet in seen))
                reservation.release()
                time.sleep(0.3)
            report(
                what="set-up",
                routers=int(routers),
                protocol=protocol,
                first_ms=round(times[0], 2),
                further_ms=round(statistics.median(times[1:]), 2),
                packets=statistics.median(packets),
                octets=statistics.median(octets),
            )
    held = [Reservation(signalbox, protocol, places[-1].split("=")[1]) for protocol in protocols]
    time.sleep(1)
    since = time.time_ns() // 1000
    print("held", flush=True)
    time.sleep(REFRESH * PERIODS)
    for protocol in protocols:
        seen = link.of(protocol, since)
        # So many periods pass in a minute with the usual one.
        factor = 60 / USUAL / PERIODS
        octets = sum(packet[2] for packet in seen)
        report(what="a minute of holding", protocol=protocol, packets=round(len(seen) * factor, 1), octets=round(octets * factor))
    print("counted", flush=True)
    for reservation in held:
        reservation.process.wait()


def daemon(config):
    """The process of the daemon of this lab with this configuration file; None: there is none."""
    path = os.path.dirname(os.environ["SIGNALBOX_SOCKET"]) + config
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"signalboxd") and path.encode() in words:
            return process
    return None


def memory(signalbox, protocols, destination, config):
    def resident():
        with open(f"/proc/{daemon(config)}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    held = []
    for protocol in protocols:
        before = resident()
        # They stay until the end, so that no protocol gets memory that another one has left.
        held.append(Reservation(signalbox, protocol, destination, ["--rate", "8kbit", "--flows", str(MANY)]))
        time.sleep(1)
        report(what="memory", protocol=protocol, octets_each=round((resident() - before) * 1024 / MANY))
    for reservation in held:
        reservation.release()


def watch(interface, key, protocols, wanted):
    def there():
        shown = subprocess.run(["tc", "class", "show", "dev", interface], capture_output=True, text=True, check=False).stdout
        return {protocol for protocol in protocols if f" rate {FIRST_RATE + PROTOCOLS[protocol]}Mbit" in shown}

    config, _, link = key.partition(":")
    process = daemon(config)

    def begun():
        try:
            with open(f"/proc/{process}/net/route", encoding="utf-8") as file:
                return link != "" and not any(line.startswith(f"{link}\t") for line in file)
        except OSError:
            return True

    while wanted == "gone" and there() != set(protocols):
        time.sleep(0.01)
    print("watching", flush=True)
    while not begun():
        time.sleep(0.005)
    start = time.monotonic()
    missing = set(protocols)
    while missing:
        now = there()
        done = missing & now if wanted == "there" else missing - now
        for protocol in sorted(done):
            report(what=f"reservation {wanted}", protocol=protocol, ms=round((time.monotonic() - start) * 1000))
        missing -= done
        time.sleep(0.01)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "reserve":
        reserve(rest[0], rest[1].split(","), rest[2:])
    elif what == "memory":
        memory(rest[0], rest[1].split(","), *rest[2:])
    else:
        watch(rest[0], rest[1], rest[2].split(","), rest[3])
