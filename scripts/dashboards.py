#!/usr/bin/python3
"""The parts of dashboards.sh that need more than a shell.

usage: dashboards.py prometheus PLACE            writes PLACE/prometheus.yml for the lab that PLACE/lab.json describes
       dashboards.py evaluate PLACE SIGNALBOX    asks for something by each protocol, again and again, and evaluates each expression until
                                                 all give data, or two minutes have passed; to be run in a node of the lab
"""
import ipaddress
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "contrib/grafana/signalbox.json"
QUIET = ROOT / "contrib/grafana/quiet.tsv"
RULES = ROOT / "contrib/prometheus/signalbox.rules.yml"
PROMETHEUS = "http://127.0.0.1:9090/api/v1/"
DEADLINE = 120


def lab(place):
    return json.loads((place / "lab.json").read_text())["nodes"]


def addresses(place):
    """One address of each node of the lab, by its name."""
    return {node["name"]: str(ipaddress.ip_interface(node["interfaces"][0]["address"]).ip) for node in lab(place)}


def prometheus(place):
    # JSON is YAML.
    targets = [{"targets": [f"{address}:9464"], "labels": {"node": name}} for name, address in addresses(place).items()]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "signalbox", "static_configs": targets}],
    }
    (place / "prometheus.yml").write_text(json.dumps(config, indent=2))


class Requests(threading.Thread):
    """Asks for something by each protocol, again and again."""

    def __init__(self, place, signalbox):
        super().__init__()
        self.signalbox = signalbox
        self.nodes = addresses(place)
        self.places = {node["name"]: (node["namespace"], node["socket"]) for node in lab(place)}
        self.log = (place / "requests.log").open("w")
        self.ended = threading.Event()

    def begin(self, node, *command):
        namespace, socket = self.places[node]
        # nsenter becomes the command, so that what is ended is the command.
        command = ["nsenter", f"--net=/run/netns/{namespace}", *command]
        environment = os.environ | {"SIGNALBOX_SOCKET": socket}
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def by(self, node, command, port, *more):
        flow = [self.nodes["h2"], "--proto", "udp", "--dport", port]
        return self.begin(node, self.signalbox, *command, *flow, *more)

    def once(self):
        """Everything at a time; it takes some eight seconds."""
        reserve, passage, ping = ["reserve"], ["pinhole", "open"], [self.signalbox, "ping", self.nodes["h2"], "--count", "2"]
        # A more special route for a moment: the protocols look up their routes again.
        route = ["ip", "route"], [f"{self.nodes['h2']}/32", "via", self.nodes["fw"]]
        return [
            self.by("h1", reserve, "5001", "--rate", "1mbit", "--hold", "8s"),
            self.by("h1", ["rsvp", "send"], "5002", "--rate", "1mbit", "--hold", "8s"),
            self.by("h2", ["rsvp", "receive"], "5002", "--hold", "6s"),
            self.by("h1", reserve, "5003", "--rate", "1mbit", "--hold", "1s", "--signaling", "casp"),
            self.by("h1", reserve, "5004", "--sport", "5004", "--rate", "1mbit", "--hold", "1s", "--signaling", "boomerang"),
            # More than the link has.
            self.by("h1", reserve, "5005", "--rate", "50mbit", "--hold", "1s"),
            self.by("h1", passage, "5600", "--sport", "5600", "--hold", "1s"),
            self.by("h1", passage, "5601", "--sport", "5601", "--hold", "1s", "--signaling", "casp"),
            self.begin("h1", *ping),
            self.begin("h1", *ping, "--signaling", "casp"),
            self.begin("h1", "bash", "-c", f"echo stray >/dev/udp/{self.nodes['r1']}/270"),
            self.begin("r1", "bash", "-c", " ".join([*route[0], "replace", *route[1], "&& sleep 2 &&", *route[0], "del", *route[1]])),
        ]

    def run(self):
        while not self.ended.is_set():
            begun = self.once()
            for one in begun:
                while one.poll() is None and not self.ended.wait(0.1):
                    pass
            for one in begun:
                one.terminate()
                one.wait()

    def end(self):
        self.ended.set()
        self.join()


def ask(path, **parameters):
    with urllib.request.urlopen(f"{PROMETHEUS}{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
        return json.load(answer)["data"]


def has_data(expression):
    """Whether the expression has a value that is a number now."""
    return any(not math.isnan(float(sample["value"][1])) for sample in ask("query", query=expression)["result"])


def of_dashboard():
    """The expressions of the dashboard as Grafana asks them with all nodes, protocols and interfaces selected."""
    dashboard = json.loads(DASHBOARD.read_text())
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            yield f"variable {variable['name']}", f'{metric}{{{label}!=""}}'
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = re.sub(r"\$(instance|protocol|interface)", ".*", target["expr"])
            yield f"{panel['title']} {target['refId']}", expression.replace("$__rate_interval", "20s")


def of_alerts():
    """The alternatives of each alert."""
    for group in ask("rules", type="alert")["groups"]:
        for rule in group["rules"]:
            for number, expression in enumerate(re.split(r"\s+or\s+", rule["query"]), 1):
                yield f"{rule['name']} {number}", expression


def without_bound(expression):
    """The expression with the result of its comparison in place of the series for which the comparison holds."""
    return re.sub(r" (>|==) ([0-9.]+)$", r" \1 bool \2", expression)


def quiet():
    lines = [line.split("\t") for line in QUIET.read_text().splitlines() if not line.startswith("#")]
    return {name: (kind, why) for name, kind, why in lines}


def everything():
    """All expressions by their names, and those of them that are waited for, as they are asked."""
    # The bound of an alert is not reached in a healthy network: the test of the rules shows that it fires. Here its series
    # have to be there.
    alerts = {name: without_bound(expression) for name, expression in of_alerts()}
    named = dict(of_dashboard()) | alerts
    listed = quiet()
    for name in sorted(listed.keys() - named.keys()):
        sys.exit(f"{QUIET.name} names {name}, which is no expression")
    waiting = dict(named)
    for name, (kind, _) in listed.items():
        if kind == "absent":
            del waiting[name]
        elif kind == "zero":
            waiting[name] = without_bound(waiting[name])
        else:
            sys.exit(f"{QUIET.name}: {name} is {kind}, which is neither zero nor absent")
    return named, waiting


def unwell():
    """Alerts that Prometheus could not evaluate, or not yet."""
    return [
        f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}"
        for group in ask("rules", type="alert")["groups"]
        for rule in group["rules"]
        if rule["health"] != "ok"
    ]


def until(holds, what):
    """Waits for a condition; an answer of Prometheus that is an error is one of ours."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            if holds():
                return
        except urllib.error.HTTPError as error:
            # 503: Prometheus begins.
            if error.code != 503:
                sys.exit(f"{error.url}: {error.read().decode()}")
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.5)
    sys.exit(what())


def evaluate(place, signalbox):
    nodes = len(addresses(place))
    until(
        lambda: sum(sample["value"][1] == "1" for sample in ask("query", query="up")["result"]) == nodes,
        lambda: f"Prometheus does not read all nodes:\n{(place / 'prometheus.log').read_text()}",
    )
    named, waiting = everything()

    def all_have_data():
        for name in [name for name, expression in waiting.items() if has_data(expression)]:
            del waiting[name]
        return not waiting and not unwell()

    # The counters are 0 still, so that their first growth is seen, too.
    requests = Requests(place, signalbox)
    requests.start()
    try:
        until(
            all_have_data,
            lambda: "\n".join([f"no data: {name}: {expression}" for name, expression in waiting.items()] + unwell()),
        )
    finally:
        requests.end()
    listed = quiet()
    for name, (kind, why) in listed.items():
        print(f"quiet ({kind}): {name}: {why}")
    due = sorted({alert["labels"]["alertname"] for alert in ask("alerts")["alerts"]})
    print(f"{len(named)} expressions: {len(named) - len(listed)} give data, {len(listed)} are listed as quiet")
    print(f"alerts that are pending or fire in this network: {', '.join(due) or 'no'}")


if __name__ == "__main__":
    what, place, *more = sys.argv[1:]
    {"prometheus": prometheus, "evaluate": evaluate}[what](pathlib.Path(place), *more)
