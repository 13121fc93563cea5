#!/usr/bin/env python3
"""The search for the highest rate, on gateways that are made up. Needs nothing but Python.

    python3 interop/throughput/test_loads.py
"""

import unittest

import loads


class MadeUp:
    """Gateways that carry so many datagrams a second, and a sender that can offer so many."""

    def __init__(self, capacity, sender=float("inf")):
        self.capacity = capacity
        self.sender = sender
        self.asked = []

    def __call__(self, rate):
        self.asked.append(rate)
        offered = min(rate, self.sender)
        if offered > self.capacity:
            return None
        return {"asked": rate, "received": offered, "is_short": offered < loads.OFFERED * rate}


class Recorded:
    """Runs of iperf3 for a second each: datagrams that were sent, that the receiver knows of, and that it lost."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.runs = []

    @staticmethod
    def buffer():
        return 4096

    def run(self, *arguments):
        self.runs.append(arguments)
        sent, known, lost = self.outcomes.pop(0)
        ends = {"sum_sent": {"packets": sent, "seconds": 1.0}, "sum_received": {"packets": known, "lost_packets": lost}}
        return {"end": ends}, {}


class Withheld:
    """Runs of TCP: bits per second, and cores that a hypervisor withheld."""

    WARM_UP = 1

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def run(self, *_):
        bits, stolen = self.outcomes.pop(0)
        ends = {"sum_received": {"bits_per_second": bits}, "sum_sent": {"retransmits": 0}}
        return {"end": ends}, {"stolen_cores": stolen}


class Stolen(unittest.TestCase):
    def test_a_sample_from_which_processors_were_withheld_is_taken_again(self):
        for runs, counts, left in (
            ([(4e9, 0.0), (5e9, 0.0)], 4e9, 1),
            ([(1e9, 0.8), (4e9, 0.1), (5e9, 0.0)], 4e9, 1),
            ([(1e9, 0.8), (3e9, 0.3), (2e9, 0.5), (5e9, 0.0)], 3e9, 1),
        ):
            traffic = Withheld(*runs)
            self.assertEqual(loads.Tcp(1).measure(traffic)["bits_per_second"], counts)
            self.assertEqual(len(traffic.outcomes), left)


class Search(unittest.TestCase):
    def test_what_is_found_is_within_a_tenth_of_the_capacity(self):
        for capacity in (250, 999, 1000, 3999, 4000, 4001, 33_333, 1_000_000):
            gateways = MadeUp(capacity)
            best, ended_by = loads.Udp.search(gateways)
            self.assertEqual(ended_by, "loss")
            self.assertLessEqual(best["received"], capacity)
            # Below the first rate the gap is four times as wide.
            least = capacity / (1.1 if capacity >= loads.FIRST_RATE else 1.2)
            self.assertGreater(best["received"], least, f"of {capacity}: {gateways.asked}")

    def test_a_sender_that_offers_less_than_asked_for_ends_it(self):
        for sender in (3000, 100_000, 120_000):
            best, ended_by = loads.Udp.search(MadeUp(1e9, sender))
            self.assertEqual((best["received"], ended_by), (sender, "sender"))

    def test_gateways_that_always_lose_have_no_rate(self):
        gateways = MadeUp(loads.LEAST_RATE - 1)
        self.assertEqual(loads.Udp.search(gateways), (None, "loss"))
        self.assertEqual(gateways.asked, [4000, 1000, 250])

    def test_a_rate_that_loses_is_tried_again(self):
        traffic, steps = Recorded((4010, 4000, 100), (4010, 4000, 4)), []
        step = loads.Udp(64).step(traffic, 4000, steps)
        self.assertEqual((step["received"], step["lost_share"], len(steps)), (3996, 0.001, 2))
        # 36 bytes of data make a packet of 64.
        wanted = ("--udp", "--bitrate", 8 * 36 * 4000, "--length", 36, "--window", 4096)
        self.assertEqual(traffic.runs, [wanted, wanted])
        self.assertIsNone(loads.Udp(64).step(Recorded((4010, 4000, 5), (4010, 0, 0)), 4000, []))

    def test_a_sender_that_is_late_once_is_tried_again(self):
        step = loads.Udp(64).step(Recorded((3000, 3000, 0), (4000, 4000, 0)), 4000, [])
        self.assertEqual((step["received"], step["is_short"]), (4000, False))
        step = loads.Udp(64).step(Recorded((3100, 3100, 0), (3000, 3000, 0)), 4000, [])
        self.assertEqual((step["received"], step["is_short"]), (3100, True))


if __name__ == "__main__":
    unittest.main()
