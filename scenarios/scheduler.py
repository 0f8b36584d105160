"""Packets of reserved flows and of best effort through one link, for the scenario rsvp-scheduler, in the standard library alone, as a paper on
RSVP routers measured them (Chiueh et al., 1998).

    scheduler.py latency    at a host: receives best effort; says at Ctrl-C how long its packets took, and how many were lost
    scheduler.py rates sessions=N
                            at a host: receives the reserved flows; says at Ctrl-C how many octets a second came in five of them
    scheduler.py source SIGNALBOX RESERVED NODE BEST sessions=N seconds=N beside=N
                            at a host: sends best effort to BEST, in each of three parts: alone for BESIDE seconds; for SECONDS beside so many
                            sessions to NODE, which has the address RESERVED; and for BESIDE seconds, without reservations, beside one flow of
                            the same packets
"""

import json
import os
import random
import resource
import selectors
import signal
import socket
import statistics
import struct
import sys
import time

from rsvp import Program

PARTS = ["alone", "reserved", "unreserved"]
BEST, TOGETHER, FIRST = 7900, 7901, 20000
# Octets of IP packets: best effort, a thousand a second; and one a second of each session, which reserves as much.
SMALL, LARGE, HEADERS = 64, 125, 28
TICKS = 1000
# The part, the number of the packet (of the last one: how many there were), and when it was sent (or for how long), in nanoseconds.
HEAD = struct.Struct("!BBIQ")
DATA, LAST = 0, 1
# A source that was held up makes up for this time and no more.
CATCH_UP = 0.01
# What queues still hold has passed after this time.
DRAINED = 1.0
SAMPLES = 5
TIMESTAMP = struct.Struct("qq")
SO_TIMESTAMPNS = 35


class Stopped(Exception):
    pass


def stop(*_):
    raise Stopped


def real_time():
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        # Without the right its packets are late more often, and the deviation says so.
        pass


def sockets(ports):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, len(ports) + 100), most))
    links = selectors.DefaultSelector()
    for port in ports:
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        link.bind(("", port))
        links.register(link, selectors.EVENT_READ, port)
    return links


def packets(links):
    """The port, part, kind, number and time of each packet, and when it came."""
    signal.signal(signal.SIGINT, stop)
    print(json.dumps({"type": "listening"}), flush=True)
    try:
        while True:
            for key, _ in links.select():
                octets, control, _, _ = key.fileobj.recvmsg(2048, 64)
                came = time.time_ns()
                for _, kind, data in control:
                    if kind == SO_TIMESTAMPNS:
                        seconds, rest = TIMESTAMP.unpack(data[: TIMESTAMP.size])
                        came = seconds * 10**9 + rest
                yield key.data, *HEAD.unpack(octets[: HEAD.size]), came
    except Stopped:
        return


def latency():
    real_time()
    took, sent = [[] for _ in PARTS], [0 for _ in PARTS]
    for _, part, kind, number, at, came in packets(sockets([BEST])):
        if kind == LAST:
            sent[part] = number
        else:
            took[part].append((came - at) / 1e6)
    for part, name in enumerate(PARTS):
        times, received = sorted(took[part]), len(took[part])
        line = {"type": "best_effort", "part": name, "sent": sent[part], "received": received}
        if sent[part]:
            line["loss_percent"] = 100 * (1 - received / sent[part])
        if times:
            line |= {"mean_ms": statistics.fmean(times), "median_ms": times[received // 2], "deviation_ms": statistics.pstdev(times)}
            line |= {"least_ms": times[0], "p99_ms": times[received * 99 // 100], "most_ms": times[-1]}
        print(json.dumps(line), flush=True)


def rates(sessions):
    """Samples are spread evenly over the sessions."""
    octets, seconds = {}, 0
    for port, part, kind, _, at, _ in packets(sockets([*range(FIRST, FIRST + sessions), TOGETHER])):
        if PARTS[part] != "reserved":
            continue
        if kind == LAST:
            seconds = at / 1e9
        else:
            octets[port] = octets.get(port, 0) + LARGE
    if not seconds:
        sys.exit("the source did not say that it has sent all")
    count = min(SAMPLES, sessions)
    for sample in range(count):
        session = sample * sessions // count
        rate = octets.get(FIRST + session, 0) / seconds
        print(json.dumps({"type": "session", "sample": sample + 1, "session": session, "octets_per_second": rate}), flush=True)


class Source:
    def __init__(self, best, reserved):
        self.link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.best, self.reserved = best, reserved

    def send(self, part, kind, number, at, size, to):
        self.link.sendto(HEAD.pack(PARTS.index(part), kind, number, at).ljust(size - HEADERS, b"."), to)

    def part(self, name, seconds, ports):
        """In each cycle of a second one packet leaves to each of the ports, in an order drawn at random, and a thousand to best effort."""
        begin, late, number, order = time.monotonic(), 0, 0, []
        for tick in range(seconds * TICKS):
            behind = time.monotonic() - (begin + tick / TICKS + late)
            if behind < 0:
                time.sleep(-behind)
            elif behind > CATCH_UP:
                late += behind
            place = tick % TICKS
            if place == 0:
                order = random.sample(ports, len(ports))
            for port in order[place * len(ports) // TICKS : (place + 1) * len(ports) // TICKS]:
                self.send(name, DATA, number, 0, LARGE, (self.reserved, port))
            self.send(name, DATA, number, time.time_ns(), SMALL, (self.best, BEST))
            number += 1
        took = time.monotonic() - begin
        time.sleep(DRAINED)
        for to in [(self.best, BEST), (self.reserved, TOGETHER)]:
            self.send(name, LAST, number, int(took * 1e9), SMALL, to)
        return number / took


def source(signalbox, reserved, node, best, sessions, seconds, beside):
    own = os.environ["SIGNALBOX_SOCKET"]
    far = os.path.join(os.path.dirname(own), f"{node}.sock")
    flow = [reserved, "--proto", "udp", "--dport", str(FIRST), *(["--flows", str(sessions)] if sessions > 1 else [])]
    said = (f"{sessions} flows announced", f"{sessions} flows confirmed") if sessions > 1 else ("announced", "confirmed by")
    # Two packets of a session may follow each other where one cycle ends and the next one begins.
    traffic = ["--rate", "1kbit", "--burst", str(2 * LARGE), "--max-packet", str(LARGE), "--min-policed", str(LARGE)]
    out = Source(best, reserved)
    made = {"type": "measured", "sessions": sessions}
    real_time()
    made["alone_per_second"] = out.part("alone", beside, [])
    kept = [Program(signalbox, own, ["send", *flow, *traffic], said[0]), Program(signalbox, far, ["receive", *flow], said[1])]
    # What the set-up of all left to do is no part of the measurement.
    time.sleep(2)
    made["reserved_per_second"] = out.part("reserved", seconds, list(range(FIRST, FIRST + sessions)))
    for program in reversed(kept):
        program.end()
    time.sleep(1)
    made["unreserved_per_second"] = out.part("unreserved", beside, [TOGETHER] * sessions)
    print(json.dumps(made), flush=True)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "latency":
        latency()
    else:
        words = (word.split("=") for word in rest if "=" in word)
        numbers = {name: int(number) for name, number in words}
        run = {"rates": rates, "source": source}[what]
        run(*(word for word in rest if "=" not in word), **numbers)
