"""What is sent through the gateways: TCP streams, and datagrams of UDP at rising rates.

A load measures one sample (`measure`) with the runs of iperf3 that it is given (`traffic.py`), and says which number of a
sample is its figure (`figure`), in which unit it is told and how much of the number that unit is (`unit`).
"""

from lab import Failed

IP_AND_UDP = 28  # bytes of the headers of IPv4 and UDP
MOST_LOST = 0.001  # share of the datagrams
FIRST_RATE = 4000  # datagrams per second
LEAST_RATE = 250
MOST_RATE = 64_000_000  # nothing offers as many: iperf3 ends the search before
HALVINGS = 3  # of the gap between a rate that was good and twice that
TRIES = 2  # of a rate: other programs of the machine make datagrams get lost and senders late, too
MOST_STOLEN = 0.15  # cores that a hypervisor may withhold from a sample of TCP
STOLEN_TRIES = 3  # of a sample from which more was withheld
OFFERED = 0.95  # of the rate asked for; a sender that offers less is at its end


class Tcp:
    """Some TCP streams at once, for as long as a sample takes."""

    figure = "bits_per_second"
    unit = ("Gb/s", 1e9)

    def __init__(self, streams):
        self.name = f"tcp{streams}"
        self.streams = streams
        self.title = "One TCP stream" if streams == 1 else f"{streams} TCP streams at once"

    def measure(self, traffic):
        """Goodput as the receiver counted it.

        A hypervisor that withholds processors can lower it to a third. Such a sample is taken again, and that with the
        least withheld counts.
        """
        best = None
        for _ in range(STOLEN_TRIES):
            sample = self.sample(traffic)
            if not best or sample["stolen_cores"] < best["stolen_cores"]:
                best = sample
            if best["stolen_cores"] <= MOST_STOLEN:
                break
        return best

    def sample(self, traffic):
        """One run of iperf3."""
        said, figures = traffic.run("--omit", traffic.WARM_UP, "--parallel", self.streams)
        received, sent = said["end"]["sum_received"], said["end"]["sum_sent"]
        if received["bits_per_second"] <= 0:
            raise Failed("nothing arrived")
        return {
            "bits_per_second": received["bits_per_second"],
            "retransmits": sent.get("retransmits"),
            **figures,
        }


class Udp:
    """UDP packets of one size, at rising rates until more than one of 1,000 is lost."""

    figure = "datagrams_per_second"
    unit = ("k/s", 1e3)

    def __init__(self, size):
        self.name = f"udp{size}"
        self.size = size  # of the IP packet, as hosts send it
        self.title = f"UDP packets of {size} bytes with at most one of 1,000 lost"

    def measure(self, traffic):
        """The highest rate that was good, and every step on the way to it."""
        steps = []
        best, ended_by = self.search(lambda rate: self.step(traffic, rate, steps))
        if not best:
            raise Failed(f"more than 0.1 % lost at every rate; steps: {steps}")
        return {
            "datagrams_per_second": best["received"] / best["seconds"],
            "bits_per_second": 8 * self.payload * best["received"] / best["seconds"],
            "lost_share": best["lost_share"],
            "ended_by": ended_by,
            "gateway_cpu_s_per_gb": best["gateway_cpu_s_per_gb"],
            "others_cores": best["others_cores"],
            "stolen_cores": best["stolen_cores"],
            "path_mtu": best["path_mtu"],
            "receive_buffer": traffic.buffer(),
            "steps": steps,
        }

    @property
    def payload(self):
        """Bytes of a datagram's data."""
        return self.size - IP_AND_UDP

    @staticmethod
    def search(step):
        """The best step, and what ended the search: `loss`, or the `sender`, which could offer no more."""
        best, rate = None, FIRST_RATE
        while not best:
            best = step(rate)
            if not best:
                rate /= 4
                if rate < LEAST_RATE:
                    return None, "loss"
        failed = 4 * rate if rate < FIRST_RATE else None
        while not failed:
            if best["is_short"] or 2 * rate > MOST_RATE:
                return best, "sender"
            rate *= 2
            found = step(rate)
            best, failed = found or best, None if found else rate
        good = best["asked"]
        for _ in range(HALVINGS):
            rate = (good * failed) ** 0.5
            found = step(rate)
            if found and found["is_short"]:
                return found, "sender"
            best = found or best
            good, failed = (rate, failed) if found else (good, rate)
        return best, "loss"

    def step(self, traffic, rate, steps):
        """Offers datagrams at a rate; None if too many were lost, however often it was tried.

        A sender that offered less than asked for is tried again as well.
        """
        best = None
        for _ in range(TRIES):
            bits = round(8 * self.payload * rate)
            size = ("--udp", "--bitrate", bits, "--length", self.payload, "--window", traffic.buffer())
            said, figures = traffic.run(*size)
            step = {"asked": rate, **counts(said), **figures}
            step["is_short"] = step["sent"] / step["seconds"] < OFFERED * rate
            steps.append(step)
            if not step["received"] or step["lost_share"] > MOST_LOST:
                continue
            if not step["is_short"]:
                return step
            if not best or step["received"] > best["received"]:
                best = step
        return best


def counts(said):
    """Datagrams: sent, as the sender counted them; received and lost, as the receiver did by their numbers."""
    sent, received = said["end"]["sum_sent"], said["end"]["sum_received"]
    arrived = received["packets"] - received["lost_packets"]
    return {
        "seconds": sent["seconds"],
        "sent": sent["packets"],
        "received": arrived,
        "lost": received["lost_packets"],
        "lost_share": received["lost_packets"] / max(1, received["packets"]),
    }


ALL = [Tcp(1), Tcp(8), Udp(64), Udp(512), Udp(1400)]
