"""CASP for the scenarios casp-scout, casp-congestion and casp-dns, in the standard library alone.

    casp.py scout DESTINATION gap=GAP count=COUNT
                                          at a host: sends Scout Requests towards the destination, at first COUNT of them with GAP seconds
                                          between two, and then 100, ten in a second; prints the round trips as lines of JSON
    casp.py burst DESTINATION MBIT        sends UDP packets of 1,024 octets in ten bursts a second, until Ctrl-C; MBIT includes the
                                          headers

    casp.py dns DOMAIN SERVER             at a host: is the resolver of a domain with one server, whose IPv4 address it gives; prints
                                          each question that it is asked, until Ctrl-C

The wire format is that of docs/wire/casp.md.
"""

import json
import os
import select
import signal
import socket
import statistics
import struct
import sys
import time

PORT = 50004
ROUTER_ALERT = bytes((0x94, 4, 0, 0))
SO_TIMESTAMPNS = 35
# Requests that follow each other closely: their name, seconds between two, and their number.
CLOSE = ("10 in 1 s", 0.1, 100)
PACKET, BURSTS = 1024, 10


def encoded(name):
    return b"".join(bytes((len(label),)) + label.encode() for label in name.split(".")) + bytes(1)


def dns(domain, server):
    host = "server." + domain
    records = {
        ("_casp._tcp." + domain, 33): struct.pack("!HHH", 10, 1, 50003) + encoded(host),
        (host, 1): socket.inet_aton(server),
    }
    listener = socket.create_server(("", 53))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    print("listening", flush=True)
    while True:
        link, _ = listener.accept()
        stream = link.makefile("rwb")
        while length := stream.read(2):
            query = stream.read(struct.unpack("!H", length)[0])
            name, kind = query[12:-4], struct.unpack("!H", query[-4:-2])[0]
            labels, rest = [], name
            while rest[0]:
                labels.append(rest[1 : 1 + rest[0]].decode())
                rest = rest[1 + rest[0] :]
            asked = ".".join(labels)
            print(json.dumps({"type": "asked", "name": asked, "kind": kind}), flush=True)
            found = records.get((asked, kind))
            record = struct.pack("!HHHIH", 0xC00C, kind, 1, 60, len(found)) + found if found else b""
            header = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(found is not None), 0, 0)
            answer = header + query[12:] + record
            stream.write(struct.pack("!H", len(answer)) + answer)
            stream.flush()


def scout(destination, gap, count):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind(("", PORT))
    link.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, ROUTER_ALERT)
    link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    for rate, gap, count in ((f"1 in {gap} s", float(gap), int(count)), CLOSE):
        times = []
        next_at = time.monotonic()
        for _ in range(count):
            time.sleep(max(0, next_at - time.monotonic()))
            next_at += gap
            cookie = os.urandom(8)
            request = struct.pack("!I16xHBB", 2, 12, 5, 1) + cookie
            sent = time.time_ns()
            link.sendto(request, (destination, PORT))
            if not select.select([link], [], [], 0.4)[0]:
                continue
            # The kernel notes when the Response came, so that the start of this program again does not count.
            octets, ancillary, _, _ = link.recvmsg(2048, 64)
            seconds, rest = struct.unpack("qq", ancillary[0][2][:16])
            response = len(octets) == 44 and octets[3] == 3 and octets[24:32] == cookie
            if response:
                times.append((seconds * 10**9 + rest - sent) / 1000)
        print(
            json.dumps(
                {
                    "type": "measured",
                    "requests": rate,
                    "sent": count,
                    "answered": len(times),
                    "least_us": round(min(times), 1) if times else None,
                    "most_us": round(max(times), 1) if times else None,
                    "mean_us": round(statistics.fmean(times), 1) if times else None,
                    "median_us": round(statistics.median(times), 1) if times else None,
                    "deviation_us": round(statistics.pstdev(times), 1) if times else None,
                }
            ),
            flush=True,
        )


def burst(destination, mbit):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    payload = bytes(PACKET - 28)
    stopped = []
    signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
    print("sending", flush=True)
    each = mbit * 125000 / PACKET / BURSTS
    due, next_at, sent = 0.0, time.monotonic(), 0
    while not stopped:
        due += each
        while due >= 1:
            due -= 1
            sent += 1
            try:
                link.sendto(payload, (destination, 9))
            except OSError:
                # The queue of the own link is full, or the end of the flow has reported that the port is closed.
                pass
        next_at += 1 / BURSTS
        time.sleep(max(0, next_at - time.monotonic()))
    print(json.dumps({"type": "measured", "mbit": mbit, "packets": sent}), flush=True)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "scout":
        scout(arguments[0], **dict(argument.split("=") for argument in arguments[1:]))
    elif what == "dns":
        dns(*arguments)
    else:
        burst(arguments[0], float(arguments[1]))
