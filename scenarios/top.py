"""Drives `signalbox top` as its user does, at a terminal of its own, in the standard library alone.

    top.py SIGNALBOX LINK PORT    runs it at this node: LINK has to be on its screen, and a flow to PORT; then the daemon goes and comes

Prints the first whole screen, and a line after each thing that held. The first that does not hold within its time ends it with an error.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

# Far more than a busy machine needs.
PATIENCE = 60
SEQUENCE = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78]")


class Terminal:
    """A program at a pseudo terminal, and what it has drawn there."""

    def __init__(self, command, width=80, height=24):
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.resize(width, height)
        self.output = b""
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.program = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, width, height):
        self.width, self.height = width, height
        self.cells = [[" "] * width for _ in range(height)]
        self.row = self.column = 0
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read(self, wait):
        """Reads what comes within this time. False: the program has closed its side."""
        if not select.select([self.master], [], [], wait)[0]:
            return True
        try:
            octets = os.read(self.master, 65536)
        except OSError:
            return False
        self.output += octets
        self.draw(octets)
        return bool(octets)

    def draw(self, octets):
        place = 0
        while place < len(octets):
            sequence = SEQUENCE.match(octets, place)
            if sequence:
                place = sequence.end()
                self.control((sequence[1] or b"").decode(), (sequence[2] or b"").decode())
                continue
            if 32 <= octets[place] < 127 and self.row < self.height and self.column < self.width:
                self.cells[self.row][self.column] = chr(octets[place])
                self.column += 1
            place += 1

    def control(self, parameters, what):
        if what == "H":
            row, column = (parameters.split(";") + ["1"])[:2] if parameters else ("1", "1")
            self.row, self.column = int(row) - 1, int(column) - 1
        elif what == "J":
            self.cells = [[" "] * self.width for _ in range(self.height)]

    def screen(self):
        return ["".join(row).rstrip() for row in self.cells]

    def until(self, holds, what):
        end = time.monotonic() + PATIENCE
        while not holds(self.screen()):
            if time.monotonic() > end or not self.read(0.2):
                self.fail(f"{what} did not hold; the screen:")
        print(what, flush=True)

    def shows(self, *texts):
        self.until(lambda screen: all(any(text in line for line in screen) for text in texts), "shows " + ", ".join(texts))

    def type(self, keys):
        os.write(self.master, keys)

    def ends(self, how):
        """It ends with success, and the terminal is as it was."""
        end = time.monotonic() + PATIENCE
        while self.program.poll() is None:
            if time.monotonic() > end:
                self.fail(f"it does not end by {how}")
            self.read(0.2)
        while select.select([self.master], [], [], 0)[0] and self.read(0):
            pass
        if self.program.returncode != 0:
            self.fail(f"status {self.program.returncode} after {how}")
        if termios.tcgetattr(self.slave) != self.before:
            self.fail(f"other settings of the terminal after {how}")
        last = max(self.output.rfind(b"\x1b[?1049h"), self.output.rfind(b"\x1b[?25l"))
        if not (self.output.rfind(b"\x1b[?1049l") > last and self.output.rfind(b"\x1b[?25h") > last):
            self.fail(f"the screen is not given back after {how}")
        print(f"ends by {how}", flush=True)

    def fail(self, why):
        print(why, *self.screen(), sep="\n", flush=True)
        self.program.kill()
        sys.exit(1)


def refused(command, what):
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ended.returncode != 2 or "show VIEW --watch --json" not in ended.stderr:
        sys.exit(f"{what}: status {ended.returncode}, {ended.stderr}")
    print("refused", what, flush=True)


def main(program, link, port):
    command = [program, "top", "--interval", "200ms"]
    top = Terminal(command)
    top.shows(link, f"port {port}", "qos", "q quit")
    # The second answer gives the rates.
    top.until(lambda screen: any(line.startswith(link) and line.count("%") == 2 for line in screen), "measures the link")
    print(*top.screen(), sep="\n", flush=True)
    top.type(b"/no such flow\r")
    top.shows("none that passes the filter")
    top.type(b"\x1b")
    top.shows(f"port {port}")
    top.type(b"\r")
    top.shows("statistics.packets", "Esc back")
    # An Esc and a letter that arrive together, as over a slow line.
    top.type(b"\x1b6")
    top.shows("OUTCOME", "granted")
    top.type(b"2")
    top.resize(60, 15)
    top.until(lambda screen: screen[14].startswith("q quit"), "draws a smaller screen")
    top.resize(120, 40)
    top.until(lambda screen: screen[39].startswith("q quit"), "draws a larger screen")
    print("waits for the daemon to go", flush=True)
    top.shows("no answer since", "OLD")
    top.shows("connected again to the daemon", "it has restarted")
    top.shows(f"port {port}")
    top.type(b"q")
    top.ends("q")
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP"), (signal.SIGQUIT, "SIGQUIT")):
        top = Terminal(command)
        top.shows("q quit")
        top.program.send_signal(number)
        top.ends(name)
    top = Terminal(command)
    top.shows("q quit")
    top.type(b"\x1a")
    os.waitid(os.P_PID, top.program.pid, os.WSTOPPED | os.WNOWAIT)
    if termios.tcgetattr(top.slave) != top.before:
        top.fail("other settings of the terminal after Ctrl-Z")
    top.cells = [[" "] * top.width for _ in range(top.height)]
    top.program.send_signal(signal.SIGCONT)
    top.shows("q quit")
    top.type(b"\x03")
    top.ends("Ctrl-C")
    refused([*command, "--json"], "with --json")
    refused(command, "without a terminal")


main(*sys.argv[1:])
