"""RSVP for the scenario rsvp-latency, in the standard library alone: sessions that are set up and ended one after the other, beside others
that stay, as the papers on RSVP routers measured (Chiueh et al., 1998; Cselenyi et al., 2001).

    rsvp.py rounds SIGNALBOX DESTINATION NODE sessions=N count=N rate=N
                        at the first host: keeps so many sessions between it and NODE, which has the DESTINATION; then sets up one more and
                        ends it, COUNT times, beside packets of 64 octets at this rate a second; each time it sends datagrams as long as a
                        Path and a Resv
    rsvp.py load DESTINATION RATE
                        at a host: sends the packets, until it is ended

The command of the node at the other end is started here, too: its daemon's socket is beside the own one.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

KEPT, MEASURED = "20000", "7000"
PAUSE = 0.03
# IP packets: a Path, a Resv, and the load.
SIZES = {"path": 208, "resv": 148}
SMALL, HEADERS = 64, 28
PROBE = "signalbox lab probe"


class Program:
    """A command that announces or reserves, until it is ended."""

    def __init__(self, signalbox, control, words, said):
        environment = {**os.environ, "SIGNALBOX_SOCKET": control}
        self.process = subprocess.Popen([signalbox, "rsvp", *words], env=environment, stdout=subprocess.PIPE, text=True)
        self.words = words
        self.wait(said)

    def wait(self, said):
        for line in self.process.stdout:
            if said in line:
                return
        sys.exit(f"{' '.join(self.words)}: it ended before it said {said!r}")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


def load(destination, rate):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    payload, sent, start = bytes(SMALL - HEADERS), 0, time.monotonic()
    while True:
        due = int((time.monotonic() - start) * rate)
        for _ in range(due - sent):
            link.sendto(payload, (destination, 9))
        sent = due
        time.sleep(0.001)


def rounds(signalbox, destination, node, sessions, count, rate):
    own = os.environ["SIGNALBOX_SOCKET"]
    far = os.path.join(os.path.dirname(own), f"{node}.sock")

    def sender(port, said, *more):
        words = ["send", destination, "--proto", "udp", "--dport", port, "--rate", "8kbit", *more]
        return Program(signalbox, own, words, said)

    def receiver(port, said, *more):
        return Program(signalbox, far, ["receive", destination, "--proto", "udp", "--dport", port, *more], said)

    kept = []
    if sessions:
        flows = ["--flows", str(sessions)] if sessions > 1 else []
        said = (f"{sessions} flows announced", f"{sessions} flows confirmed") if sessions > 1 else ("announced", "confirmed by")
        kept = [sender(KEPT, said[0], *flows), receiver(KEPT, said[1], *flows)]
        # What the set-up of all left to do is no part of a round.
        time.sleep(1)
    loading = [subprocess.Popen([sys.executable, __file__, "load", destination, str(rate)])] if rate else []
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.sendto(f"{PROBE} begin".encode(), (destination, 9))
    time.sleep(PAUSE)
    for number in range(count):
        for name, size in SIZES.items():
            link.sendto(f"{PROBE} {name} {number} ".encode().ljust(size - HEADERS, b"."), (destination, 9))
            time.sleep(PAUSE)
        receiving = receiver(MEASURED, "registered")
        sending = sender(MEASURED, "announced")
        receiving.wait("confirmed by")
        time.sleep(PAUSE)
        receiving.end()
        time.sleep(PAUSE)
        sending.end()
        time.sleep(PAUSE)
    for process in loading:
        process.kill()
        process.wait()
    print(json.dumps({"type": "measured", "sessions": sessions, "rounds": count, "packets_per_second": rate}), flush=True)
    for program in kept:
        program.end()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "load":
        load(rest[0], int(rest[1]))
    else:
        numbers = (word.split("=") for word in rest[3:])
        rounds(*rest[:3], **{name: int(number) for name, number in numbers})
