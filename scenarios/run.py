"""Programs of the scenario run-udp.

    run.py iperf ADDRESS SECONDS [OPTION...]
                        runs iperf3 towards its server, and prints one line of JSON about what arrived there: goodput_octets_per_s (of
                        payload), lost_percent (of datagrams), retransmits (of TCP)
    run.py serve        runs the server of iperf3 for one client
    run.py send ADDRESS PORT SECONDS
                        sends small datagrams from a socket without a peer, 100 in a second, and starts no other program
    run.py status N     ends with this status
"""

import json
import os
import socket
import subprocess
import sys
import time


def iperf(address, seconds, *options):
    command = ["iperf3", "--json", "--client", address, "--time", seconds, *options]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout
    result = json.loads(output)
    if "error" in result:
        sys.exit(result["error"])
    end = result["end"]
    received = end.get("sum_received", end["sum"])
    line = {"type": "iperf", "goodput_octets_per_s": int(received["bits_per_second"] / 8)}
    if "lost_percent" in end.get("sum", {}):
        line["lost_percent"] = end["sum"]["lost_percent"]
    if "retransmits" in end.get("sum_sent", {}):
        line["retransmits"] = end["sum_sent"]["retransmits"]
    print(json.dumps(line), flush=True)


def send(address, port, seconds):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sender = socket.socket(family, socket.SOCK_DGRAM)
    for _ in range(int(seconds) * 100):
        sender.sendto(bytes(172), (address, int(port)))
        time.sleep(0.01)


def main():
    what, *rest = sys.argv[1:]
    if what == "iperf":
        iperf(*rest)
    elif what == "serve":
        os.execvp("iperf3", ["iperf3", "--server", "--one-off", "--forceflush"])
    elif what == "send":
        send(*rest)
    elif what == "status":
        sys.exit(int(rest[0]))
    else:
        sys.exit(__doc__)


main()
