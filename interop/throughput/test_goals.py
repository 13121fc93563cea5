#!/usr/bin/env python3
"""Goals beside samples that are made up. Needs nothing but Python.

    python3 interop/throughput/test_goals.py
"""

import types
import unittest

import goals
import loads
import report
from candidates import Candidate

TCP1, TCP8 = loads.ALL[:2]


def result(processors, both=False, **figures):
    """A run of one TCP stream: Gb/s of each round by candidate, or pairs of Gb/s and CPU seconds a GB."""
    options = types.SimpleNamespace(both=both, load=[TCP1, TCP8], rounds=3, urgent=False)
    found = report.Result(options, [named(name.replace("_", "-")) for name in figures], {"cores": processors})
    for candidate, rounds in zip(found.candidates, figures.values()):
        for number, figure in enumerate(rounds):
            found.add(candidate, number, sample("tcp1", "a-to-b", *(figure if isinstance(figure, tuple) else (figure, None))))
    return found


def named(name):
    candidate = Candidate()
    candidate.name = name
    return candidate


def sample(load, way, gigabits, cpu=None):
    return {"load": load, "direction": way, "bits_per_second": gigabits * 1e9, "gateway_cpu_s_per_gb": cpu}


def told(found):
    """Candidate, quantity, value and verdict of each goal."""
    return [(fact["candidate"], fact["quantity"], round(fact["value"], 3), fact["met"]) for fact in goals.judged(found)]


class Goals(unittest.TestCase):
    def test_medians_are_judged_in_the_goals_direction(self):
        found = result(
            2, wireguard_go=[0.5, 1.0, 9.0], convoy_udp=[(3.0, 1.6), (2.9, 1.5), (3.1, 1.4)],
            convoy_esp=[1.7, 1.5, 1.59], convoy_sockets=[1.0, 1.0, 0.1],
        )
        self.assertEqual(told(found), [
            ("convoy-udp", "times_wireguard-go", 3.0, True),
            ("convoy-udp", "gateway_cpu_s_per_gb", 1.5, True),
            ("convoy-esp", "times_wireguard-go", 1.59, False),
            ("convoy-sockets", "times_wireguard-go", 1.0, True),
        ])
        slow = result(2, wireguard_go=[1.0], convoy_udp=[(2.99, 1.51)])
        self.assertEqual([fact["met"] for fact in goals.judged(slow)], [False, False])

    def test_what_was_not_measured_has_no_goal(self):
        self.assertEqual(told(result(2, plain=[9.0], convoy_esp=[1.7])), [])
        self.assertEqual(told(result(2, convoy_udp=[(3.0, 1.2)])), [("convoy-udp", "gateway_cpu_s_per_gb", 1.2, True)])
        self.assertEqual(told(result(2, wireguard_go=[1.0], convoy_udp=[])), [])

    def test_goals_are_for_a_number_of_processors(self):
        figures = {"plain": [10.0], "wireguard_go": [1.0], "convoy_udp": [(4.0, 1.0)], "convoy_udp_workers": [(6.0, 2.0)]}
        for processors in (1, 4, 15, 32):
            self.assertEqual(told(result(processors, **figures)), [])
        # The better of the two counts; eight streams were not measured.
        self.assertEqual(told(result(16, **figures)), [("convoy-udp-workers", "times_plain", 0.6, True)])
        found = result(16, **figures)
        for candidate in found.candidates:
            found.add(candidate, 0, sample("tcp8", "a-to-b", {"plain": 10.0, "convoy-udp": 7.9}.get(candidate.name, 7.0)))
        self.assertEqual(told(found)[1:], [("convoy-udp", "times_plain", 0.79, False)])

    def test_each_direction_is_judged_by_itself(self):
        found = result(2, both=True, wireguard_go=[1.0], convoy_esp=[2.0])
        for candidate, gigabits in zip(found.candidates, (1.0, 1.5)):
            found.add(candidate, 0, sample("tcp1", "b-to-a", gigabits))
        self.assertEqual([(fact["direction"], fact["met"]) for fact in goals.judged(found)],
                         [("a-to-b", True), ("b-to-a", False)])

    def test_text_has_value_goal_and_verdict(self):
        text = goals.lines(goals.judged(result(2, wireguard_go=[1.0], convoy_udp=[(3.2, 1.625)])))
        self.assertEqual([line.split() for line in text[1:]], [
            "Goals for 2 processors that everything shares".split(),
            "convoy-udp tcp1 a-to-b 3.200 × wireguard-go at least 3.0 met".split(),
            "convoy-udp tcp1 a-to-b 1.625 CPU s/GB at most 1.5 missed".split(),
        ])
        self.assertEqual(goals.lines([]), [])


if __name__ == "__main__":
    unittest.main()
