"""What a measurement of times needs beside the protocols, in the standard library alone.

    times.py begin DESTINATION          at a host: a datagram says on each link that the measurement begins; what was there before is no part of it
    times.py pings DESTINATION count=N  at a host: the kernel at the DESTINATION answers so many Echoes, one after the other
"""

import json
import os
import socket
import statistics
import struct
import sys
import time

PROBE = b"signalbox lab probe begin"
ECHO, ECHO_REPLY, HEADERS = 8, 0, 20
GAP = 0.01


def begin(destination):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(PROBE, (destination, 9))
    # Nothing that follows comes before it.
    time.sleep(0.05)


def checksum(octets):
    words = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while words >> 16:
        words = (words & 0xFFFF) + (words >> 16)
    return ~words & 0xFFFF


def pings(destination, count):
    link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    link.settimeout(1)
    own, times = os.getpid() & 0xFFFF, []
    for number in range(count):
        # As ping sends them: 56 octets behind the header.
        head = struct.pack("!BBHHH", ECHO, 0, 0, own, number)
        octets = struct.pack("!BBHHH", ECHO, 0, checksum(head + bytes(56)), own, number) + bytes(56)
        start = time.perf_counter()
        link.sendto(octets, (destination, 0))
        while True:
            kind, _, _, to, of = struct.unpack("!BBHHH", link.recv(2048)[HEADERS : HEADERS + 8])
            if (kind, to, of) == (ECHO_REPLY, own, number):
                break
        times.append((time.perf_counter() - start) * 1e3)
        time.sleep(GAP)
    line = {"type": "pings", "count": count, "mean_ms": statistics.fmean(times), "median_ms": statistics.median(times)}
    print(json.dumps(line | {"least_ms": min(times), "most_ms": max(times)}), flush=True)


if __name__ == "__main__":
    what, destination, *rest = sys.argv[1:]
    numbers = {name: int(number) for name, number in (word.split("=") for word in rest)}
    {"begin": begin, "pings": pings}[what](destination, **numbers)
