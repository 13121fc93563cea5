"""What Convoy's gateways are to reach, and whether a run of compare.py has them there."""

import collections

import loads

# `candidates`: the best of those that were measured counts. `quantity`: `times_NAME` is a ratio of medians to that candidate.
Goal = collections.namedtuple("Goal", "processors candidates load quantity bound goal")

CPU = "gateway_cpu_s_per_gb"
UDP_WORKERS = ("convoy-udp", "convoy-udp-workers")
# For everything: hosts, gateways and iperf3 share the processors.
GOALS = (
    Goal(2, ("convoy-udp",), "tcp1", "times_wireguard-go", "at least", 3.0),
    Goal(2, ("convoy-udp",), "tcp1", CPU, "at most", 1.5),
    Goal(2, ("convoy-esp",), "tcp1", "times_wireguard-go", "at least", 1.6),
    Goal(2, ("convoy-sockets",), "tcp1", "times_wireguard-go", "at least", 1.0),
    Goal(16, UDP_WORKERS, "tcp1", "times_plain", "at least", 0.5),
    Goal(16, UDP_WORKERS, "tcp8", "times_plain", "at least", 0.8),
)


def judged(result):
    """Goals for as many processors as there are, of candidates that were measured: each with its value, and if it is met."""
    facts = [fact for goal in GOALS for way in result.ways() if (fact := judge(goal, result, way))]
    return [fact for fact in facts if fact["processors"] == result.machine["cores"]]


def judge(goal, result, way):
    """A goal beside what was measured in a direction; None if it was not."""
    load = next(load for load in loads.ALL if load.name == goal.load)
    values = {name: value(goal.quantity, result, name, load, way) for name in goal.candidates}
    measured = [(value, name) for name, value in values.items() if value is not None]
    if not measured:
        return None
    found, name = (max if goal.bound == "at least" else min)(measured)
    is_met = found >= goal.goal if goal.bound == "at least" else found <= goal.goal
    return {
        "candidate": name, "load": goal.load, "direction": way, "processors": goal.processors, "quantity": goal.quantity,
        "value": found, "bound": goal.bound, "goal": goal.goal, "met": is_met,
    }


def value(quantity, result, name, load, way):
    """A quantity of a candidate, over all rounds."""
    if quantity == CPU:
        return result.median(name, load, way, CPU)
    median = result.median(name, load, way, load.figure)
    return None if median is None else result.ratio(median, quantity.removeprefix("times_"), load, way)


def lines(facts):
    """Goals as text, below a table."""
    if not facts:
        return []
    return ["", f"Goals for {facts[0]['processors']} processors that everything shares", *map(line, facts)]


def line(fact):
    unit = "CPU s/GB" if fact["quantity"] == CPU else f"× {fact['quantity'].removeprefix('times_')}"
    verdict = "met" if fact["met"] else "missed"
    return (f"{fact['candidate']:<18}  {fact['load']:<6}  {fact['direction']:<6}  {fact['value']:8.3f} {unit:<14}"
            f"  {fact['bound']} {fact['goal']:<4}  {verdict}")
