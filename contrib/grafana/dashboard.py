#!/usr/bin/env python3
"""Builds contrib/grafana/signalbox.json with Grafana's own library, which knows the form of a dashboard.

usage: dashboard.py >signalbox.json     (`make dashboards` installs the library and compares)
"""
from itertools import count

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    BigValueTextMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DashboardCursorSync,
    Threshold,
    ThresholdsConfig,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)

SOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")
NODES = 'instance=~"$instance"'
OF_PROTOCOL = f'{NODES}, protocol=~"$protocol"'
OF_INTERFACE = f'{NODES}, interface=~"$interface"'


def rate(metric, labels=NODES):
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def rates(metric, by, labels=NODES):
    return f"sum by ({by}) ({rate(metric, labels)})"


def happened(metric, by, labels=NODES):
    """How often, without the lines that stay at 0: most events of this kind never happen."""
    return f"{rates(metric, by, labels)} > 0"


def quantile(part, metric, by, labels=NODES):
    return f"histogram_quantile({part}, sum by ({by}, le) ({rate(f'{metric}_bucket', labels)}))"


def query(expression, legend):
    return prometheus.Dataquery().expr(expression).legend_format(legend).datasource(SOURCE)


def limits(*steps):
    """Colors from values on; the first value is None, which is from the lowest on."""
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(
        [Threshold(value=value, color=color) for value, color in steps]
    )


def number(title, description, expression, unit="short", thresholds=((None, "blue"),)):
    """One number."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("0")
        .thresholds(limits(*thresholds))
        .span(4)
        .height(4)
        .with_target(query(expression, "").instant().ref_id("A"))
    )


def lines(title, description, *targets, unit="short", span=12, stacked=False, top=None, thresholds=None):
    """Lines over time; `targets` are expressions with their legends."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .span(span)
        .height(8)
        .fill_opacity(20 if stacked else 5)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    if top is not None:
        panel.max(top)
    if thresholds:
        panel.thresholds(limits(*thresholds))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED))
    for name, (expression, legend) in zip("ABCDEFGH", targets):
        panel.with_target(query(expression, legend).ref_id(name))
    return panel


NONE_IS_GOOD = ((None, "green"), (1, "red"))

ROWS = {
    "Overview": [
        number("Nodes", "Daemons that Prometheus reaches.", f"count(signalbox_build_info{{{NODES}}})"),
        number(
            "Sessions",
            "Sessions of all protocols of which the nodes have state.",
            f"sum(signalbox_sessions{{{OF_PROTOCOL}}})",
        ),
        number(
            "Reservations",
            "Reservations at outgoing interfaces. One reservation counts at each node of its path.",
            f"sum(signalbox_reservations{{{OF_PROTOCOL}}})",
        ),
        number(
            "Refused in the last hour",
            "Requests that admission control refused.",
            f"sum(increase(signalbox_admissions_refused_total{{{NODES}}}[1h]))",
            thresholds=((None, "green"), (1, "yellow")),
        ),
        number(
            "Broken invariants",
            "Faults of Signalbox that the daemons found in their own state: the log names the place. Absent is good.",
            f"sum(signalbox_invariant_broken_total{{{NODES}}})",
            thresholds=NONE_IS_GOOD,
        ),
        number(
            "Shortest uptime",
            "Time since the start of the daemon that started last.",
            f"time() - max(signalbox_start_time_seconds{{{NODES}}})",
            unit="s",
        ),
        lines(
            "Sessions by protocol",
            "Sessions of which the nodes have state.",
            (f"sum by (protocol) (signalbox_sessions{{{OF_PROTOCOL}}})", "{{protocol}}"),
            stacked=True,
        ),
        lines(
            "Neighbors by protocol",
            "Adjacent nodes of which the nodes have state, and messaging associations of GIST.",
            (f"sum by (protocol) (signalbox_peers{{{OF_PROTOCOL}}})", "{{protocol}}"),
            (f"sum by (stack) (signalbox_associations{{{NODES}}})", "association {{stack}}"),
        ),
    ],
    "Links": [
        lines(
            "Reserved part of each link",
            "Rate of all reservations, as a part of what the configuration lets the node reserve. At 1 requests are refused.",
            (
                f"signalbox_interface_reserved_bytes_per_second{{{OF_INTERFACE}}}"
                f" / (signalbox_interface_reservable_bytes_per_second{{{OF_INTERFACE}}} > 0)",
                "{{instance}} {{interface}}",
            ),
            unit="percentunit",
            top=1,
            thresholds=((None, "green"), (0.9, "red")),
        ),
        lines(
            "Reserved rate",
            "Rate of all reservations at an interface.",
            (f"signalbox_interface_reserved_bytes_per_second{{{OF_INTERFACE}}} * 8", "{{instance}} {{interface}}"),
            unit="bps",
        ),
        lines(
            "Rate that can be reserved",
            "Part of the capacity of an interface that can be reserved, and the capacity.",
            (f"signalbox_interface_reservable_bytes_per_second{{{OF_INTERFACE}}} * 8", "{{instance}} {{interface}} reservable"),
            (f"signalbox_interface_capacity_bytes_per_second{{{OF_INTERFACE}}} * 8", "{{instance}} {{interface}} capacity"),
            unit="bps",
        ),
        lines(
            "Reservations of each link",
            "Reservations at an outgoing interface, by protocol.",
            (
                f'sum by (instance, interface, protocol) (signalbox_reservations{{{OF_INTERFACE}, protocol=~"$protocol"}}) > 0',
                "{{instance}} {{interface}} {{protocol}}",
            ),
        ),
    ],
    "Set-up time": [
        lines(
            "Set-up time, half of the requests",
            "From the request of a client of the daemon to the confirmation that what it asked for stands on the whole path.",
            (quantile(0.5, "signalbox_setup_seconds", "protocol", OF_PROTOCOL), "{{protocol}}"),
            unit="s",
            span=8,
        ),
        lines(
            "Set-up time, 99 of 100 requests",
            "The same for the slow requests: retransmissions over a lossy path are here.",
            (quantile(0.99, "signalbox_setup_seconds", "protocol", OF_PROTOCOL), "{{protocol}}"),
            unit="s",
            span=8,
        ),
        lines(
            "Requests that were set up",
            "Requests of clients of the daemons that were granted, per second.",
            (rates("signalbox_setup_seconds_count", "protocol", OF_PROTOCOL), "{{protocol}}"),
            unit="reqps",
            span=8,
        ),
        lines(
            "Round trips of Ping",
            "Round-trip times of the requests of the Ping application.",
            (quantile(0.5, "signalbox_ping_rtt_seconds", "instance"), "{{instance}} half"),
            (quantile(0.99, "signalbox_ping_rtt_seconds", "instance"), "{{instance}} 99 of 100"),
            unit="s",
        ),
        lines(
            "Results of Ping",
            "Requests of the Ping application that ended.",
            (rates("signalbox_ping_probes_total", "result"), "{{result}}"),
            unit="reqps",
        ),
    ],
    "Admission": [
        lines(
            "Refused requests by reason",
            "policy: a rule or the default. resources: rate or buffer is not available. full: a table or a limit.",
            (rates("signalbox_admissions_refused_total", "reason"), "{{reason}}"),
            unit="reqps",
            span=8,
        ),
        lines(
            "Decisions and changes",
            "Decisions and changes of admission control, all protocols together.",
            (happened("signalbox_admission_events_total", "event"), "{{event}}"),
            unit="ops",
            span=8,
        ),
        lines(
            "Reservations by protocol",
            "What happened to the reservations of each protocol.",
            (happened("signalbox_reservation_events_total", "protocol, event"), "{{protocol}} {{event}}"),
            unit="ops",
            span=8,
        ),
        lines(
            "Queues of the kernel",
            "Changes of the reservations that the kernel enforces.",
            (happened("signalbox_enforcement_events_total", "event"), "{{event}}"),
            unit="ops",
            span=8,
        ),
        lines(
            "Pinholes and bindings of the kernel",
            "Changes of the pinholes and NAT bindings in the kernel.",
            (happened("signalbox_pinhole_events_total", "event"), "{{event}}"),
            unit="ops",
            span=8,
        ),
        lines(
            "Rules of NATFW",
            "Policy rules of the NATFW application, by what happened.",
            (happened("signalbox_natfw_rules_total", "event"), "{{event}}"),
            unit="ops",
            span=8,
        ),
    ],
    "Messages": [
        lines(
            "Messages received",
            "Messages received and accepted, by protocol.",
            (rates("signalbox_messages_received_total", "protocol", OF_PROTOCOL), "{{protocol}}"),
            unit="mps",
            span=8,
        ),
        lines(
            "Messages sent",
            "Messages sent, with retransmissions and refreshes.",
            (rates("signalbox_messages_sent_total", "protocol", OF_PROTOCOL), "{{protocol}}"),
            unit="mps",
            span=8,
        ),
        lines(
            "Messages forwarded",
            "Messages of other nodes that the nodes forwarded.",
            (rates("signalbox_messages_forwarded_total", "protocol", OF_PROTOCOL), "{{protocol}}"),
            unit="mps",
            span=8,
        ),
        lines(
            "Messages dropped",
            "Messages that were discarded, ignored or refused, by reason. Many of them may be an attack, or keys that do not match.",
            (happened("signalbox_messages_dropped_total", "protocol, reason", OF_PROTOCOL), "{{protocol}} {{reason}}"),
            (happened("signalbox_rsvp_untrusted_total", "reason"), "rsvp integrity {{reason}}"),
            unit="mps",
            span=8,
        ),
        lines(
            "Losses on the path",
            "Messages sent again, and messages given up because no answer was received.",
            (rates("signalbox_retransmissions_total", "protocol", OF_PROTOCOL), "{{protocol}} sent again"),
            (rates("signalbox_messages_unanswered_total", "protocol", OF_PROTOCOL), "{{protocol}} given up"),
            unit="mps",
            span=8,
        ),
        lines(
            "Rate limits",
            "Messages dropped, delayed or not sent because of a rate limit.",
            (happened("signalbox_rate_limited_total", "protocol, limit", OF_PROTOCOL), "{{protocol}} {{limit}}"),
            unit="mps",
            span=8,
        ),
        lines(
            "Routes and neighbors",
            "Changes of routes and peers that a protocol noticed, and what it did.",
            (happened("signalbox_route_events_total", "protocol, event", OF_PROTOCOL), "{{protocol}} {{event}}"),
            unit="ops",
        ),
        lines(
            "Associations",
            "Changes of messaging associations and their connections.",
            (happened("signalbox_association_events_total", "protocol, event", OF_PROTOCOL), "{{protocol}} {{event}}"),
            (happened("signalbox_stream_events_total", "event"), "connection {{event}}"),
            unit="ops",
        ),
    ],
    "Daemon": [
        lines(
            "Turns of the event loop",
            "Time that a turn took. A turn of 10 ms already delays the messages that follow.",
            (quantile(0.5, "signalbox_event_loop_seconds", "instance"), "{{instance}} half"),
            (quantile(0.99, "signalbox_event_loop_seconds", "instance"), "{{instance}} 99 of 100"),
            unit="s",
            span=8,
        ),
        lines(
            "Busy part of the event loop",
            "At 1 the daemon has no time left.",
            (rate("signalbox_event_loop_seconds_sum"), "{{instance}}"),
            unit="percentunit",
            top=1,
            span=8,
        ),
        lines(
            "Fullest tables",
            "Records in a table, as a part of its limit. A full table refuses.",
            (
                f"topk(10, signalbox_table_size{{{OF_PROTOCOL}}} / (signalbox_table_limit{{{OF_PROTOCOL}}} > 0))",
                "{{instance}} {{protocol}} {{table}}",
            ),
            unit="percentunit",
            top=1,
            span=8,
        ),
        lines(
            "Datagrams",
            "Packets that the sockets of the protocols received and sent.",
            (rates("signalbox_datagrams_received_total", "protocol"), "{{protocol}} received"),
            (rates("signalbox_datagrams_sent_total", "protocol"), "{{protocol}} sent"),
            unit="pps",
            span=8,
        ),
        lines(
            "Requests over the control socket",
            "What clients of the daemons asked for.",
            (rates("signalbox_api_requests_total", "kind"), "{{kind}}"),
            unit="reqps",
            span=8,
        ),
        lines(
            "Trouble of the daemon",
            "Full tables, packets that could not be received or sent, long turns, lost lines, repairs of what other programs removed.",
            (happened("signalbox_table_full_total", "protocol, table"), "full: {{protocol}} {{table}}"),
            (happened("signalbox_datagrams_failed_total", "protocol, direction, reason"), "{{protocol}} {{direction}} {{reason}}"),
            (happened("signalbox_daemon_long_turns_total", "instance"), "long turns {{instance}}"),
            (happened("signalbox_daemon_interception_restored_total", "instance"), "interception restored {{instance}}"),
            (happened("signalbox_daemon_decisions_lost_total", "instance"), "decisions lost {{instance}}"),
            (happened("signalbox_daemon_audit_lines_lost_total", "instance"), "audit lines lost {{instance}}"),
            unit="ops",
            span=8,
        ),
    ],
}


def choice(name, label, metric):
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(f"label_values({metric}, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def build():
    built = (
        dashboard.Dashboard("Signalbox")
        .uid("signalbox")
        .description("Reservations, sessions, set-up times and the state of signalboxd; metrics: docs/metrics.md")
        .tags(["signalbox"])
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(choice("instance", "Node", "signalbox_build_info"))
        .with_variable(choice("protocol", "Protocol", "signalbox_protocol_running"))
        .with_variable(choice("interface", "Interface", "signalbox_interface_capacity_bytes_per_second"))
    )
    ids = count(1)
    for title, panels in ROWS.items():
        built.with_row(dashboard.Row(title).id(next(ids)))
        for panel in panels:
            built.with_panel(panel.id(next(ids)))
    return built.build()


if __name__ == "__main__":
    print(JSONEncoder(sort_keys=True, indent=2).encode(build()))
