#!/usr/bin/env python3
"""Stacks that are made up: how they are read, sorted and merged. Needs nothing but Python.

    python3 interop/throughput/test_stacks.py
"""

import unittest
import xml.etree.ElementTree as xml

import flame
import stacks

GATEWAY, OTHER = 7, 9  # processes
PROGRAMS = {GATEWAY: "convoy"}
SEND = ["__sys_sendmmsg", "__x64_sys_sendmmsg", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"]
SOFT = ["__napi_poll", "net_rx_action", "handle_softirqs", "do_softirq", "__local_bh_enable_ip"]
# As perf prints them: the innermost frame first, and garbage where a program has no frame pointers.
PRINTED = """\
convoy-w0 7\x20
\tffffffff81f632ab nft_do_chain ([kernel.kallsyms])
\tffffffff8136013d handle_softirqs ([kernel.kallsyms])
\tffffffff81e6651d ip_output.part.0 ([kernel.kallsyms])
\tffffffff81e2fe94 __sys_sendmmsg ([kernel.kallsyms])
\tffffffff821ed511 do_syscall_64 ([kernel.kallsyms])
\t          10b106 __sendmmsg (/usr/lib/libc.so.6)
\t9222c869dc0506ec [unknown] ([unknown])

kworker/u8:0-wr 31\x20
\tffffffff816e1657 gc_worker ([nf_conntrack])
\tffffffff816e1657 kthread ([kernel.kallsyms])

a thread 7\x20
\t          d60597 <T as convoy_crypto::isa::Behind<convoy_crypto::isa::Vaes256>>::door (/opt/convoy (deleted))
"""


def sample(*innermost_first, command="convoy-w0", pid=GATEWAY, own=()):
    """A sample of the kernel's frames, below which there may be some of a program."""
    frames = [stacks.Frame(name, True) for name in innermost_first] + [stacks.Frame(name, False, "prog") for name in own]
    return stacks.Sample(command, pid, frames)


def category(*innermost_first, **process):
    return stacks.category(sample(*innermost_first, **process), PROGRAMS)


class Reading(unittest.TestCase):
    def test_each_sample_has_its_thread_and_its_frames(self):
        first, second, third = stacks.parse(PRINTED.splitlines())
        self.assertEqual((first.command, first.pid, len(first.frames)), ("convoy-w0", 7, 7))
        self.assertEqual(first.frames[2], stacks.Frame("ip_output", True, "[kernel.kallsyms]"))
        self.assertEqual(first.frames[5], stacks.Frame("__sendmmsg", False, "libc.so.6"))
        self.assertEqual((second.command, second.pid), ("kworker/u8:0-wr", 31))
        self.assertEqual((third.command, third.frames[0].image), ("a thread", "convoy"))
        self.assertTrue(third.frames[0].name.endswith("Vaes256>>::door"))


class Categories(unittest.TestCase):
    def test_the_innermost_frame_that_is_known_decides(self):
        self.assertEqual(category("__alloc_skb", "udp_sendmsg", *SEND), stacks.MEMORY)
        self.assertEqual(category("ip_output", "udp_sendmsg", *SEND), stacks.SENDING)
        self.assertEqual(category("process_backlog", *SOFT, "ip_output", *SEND), stacks.SOFT)
        self.assertEqual(category("nft_do_chain", "nf_hook_slow", *SOFT, "ip_output", *SEND), stacks.NETFILTER)
        self.assertEqual(category("jhash", "nft_do_chain", *SOFT, "tun_get_user", "do_writev"), stacks.NETFILTER)
        self.assertEqual(category("ip_forward", "tun_get_user", "do_writev"), stacks.TUN_WRITE)
        self.assertEqual(category("_copy_from_iter", "tun_get_user", "do_writev"), stacks.KERNEL_COPIES)
        self.assertEqual(category("fib_table_lookup", "ip_route_input_slow", *SOFT), stacks.ROUTING)
        self.assertEqual(category("seccomp_run_filters", "do_syscall_64"), stacks.ENTRY)
        self.assertEqual(category("gc_worker", "kthread", command="kworker/0:1", pid=31), stacks.REST)
        self.assertEqual(category("default_idle", "do_idle", command="swapper", pid=0), stacks.IDLE)

    def test_hosts_have_what_iperf3_does_and_tcp_wherever_it_runs(self):
        self.assertEqual(category("_copy_from_iter", "tcp_sendmsg", command="iperf3", pid=OTHER), stacks.HOSTS)
        self.assertEqual(category("tcp_ack", "tcp_v4_rcv", *SOFT, "tun_get_user", "do_writev"), stacks.HOSTS)
        self.assertEqual(category("tcp4_gro_receive", *SOFT), stacks.SOFT)
        # Its soft interrupts carry the gateways' packets.
        self.assertEqual(category("ip_forward", *SOFT, "tcp_sendmsg", command="iperf3", pid=OTHER), stacks.SOFT)

    def test_code_of_a_gateway_goes_by_its_innermost_function(self):
        for function, expected in (
            ("<T as convoy_crypto::isa::Behind<convoy_crypto::isa::Vaes256>>::door", stacks.CRYPTO),
            ("convoy_wire::checksum::sum_long", stacks.CHECKSUMS),
            ("convoy_io::offload::coalesce::checksum_holds", stacks.CHECKSUMS),
            ("convoy_io::offload::split::Split::pour", stacks.OFFLOAD),
            ("convoy_io::udp::tx::Sender::run", stacks.PORTS),
            ("__memmove_avx_unaligned_erms", stacks.COPIES),
            ("convoy_ipsec::pipeline::protect::run", stacks.PIPELINE),
        ):
            self.assertEqual(category(own=[function, "convoy_crypto::garbage"]), expected, function)
        self.assertEqual(category(own=["sha2::compress"], command="leases"), stacks.THREADS)
        self.assertEqual(stacks.category(sample(own=["main.seal"]), {GATEWAY: "wireguard-go"}), stacks.OTHER_GATEWAY)

    def test_programs_that_have_no_part_in_it_are_told(self):
        self.assertEqual(category("_copy_from_iter", command="cc", pid=OTHER), stacks.OTHERS)
        self.assertEqual(category(own=["main"], command="cc", pid=OTHER), stacks.OTHERS)
        self.assertEqual(category("ip_forward", *SOFT, command="cc", pid=OTHER), stacks.SOFT)

    def test_every_sample_is_in_one_row_and_rows_add_up(self):
        samples = [sample("nf_hook_slow"), sample("nf_hook_slow"), sample(), sample("fib_lookup"), sample(own=["f"]),
                   sample("copy_folio", command="cc", pid=OTHER), sample("do_idle", command="swapper", pid=0)]
        counts = stacks.shares(samples, PROGRAMS)
        self.assertEqual(sum(counts.values()), len(samples))
        self.assertEqual(counts[stacks.NETFILTER], 2)
        # A seventh is 142.86 thousandths, two are 285.71: rounded by themselves, all would have one too many.
        whole = stacks.rounded(counts)
        self.assertEqual(sorted(whole.values()), [143, 143, 143, 143, 143, 285])
        self.assertEqual(sorted(stacks.rounded({"a": 1, "b": 1, "c": 1}).values()), [333, 333, 334])

    def test_categories_have_a_place_in_the_table(self):
        rules = {found for _, found in (*stacks.KERNEL_RULES, *stacks.CONVOY_RULES)}
        self.assertEqual(rules - set(stacks.CATEGORIES), set())


class Merging(unittest.TestCase):
    def test_stacks_with_the_same_beginning_share_frames(self):
        label = "gateway A: convoy-w0"
        tree = stacks.fold([
            sample("nft_do_chain", *SEND, own=["__sendmmsg", "garbage"]),
            sample("udp_sendmsg", *SEND, own=["__sendmmsg"]),
            sample("do_syscall_64", own=["read"]),
            sample(own=["convoy_io::udp::tx::Sender::run", "garbage"]),
        ], lambda _: label)
        gateway = tree.calls["process", label]
        self.assertEqual((tree.count, gateway.count), (4, 4))
        # What every system call has is left out, unless the time was spent there.
        self.assertEqual({key: node.count for key, node in gateway.calls.items()},
                         {("kernel", "__sys_sendmmsg"): 2, ("kernel", "do_syscall_64"): 1, ("user", "its own code"): 1})
        sending = gateway.calls["kernel", "__sys_sendmmsg"]
        self.assertEqual(sorted(sending.calls), [("kernel", "nft_do_chain"), ("kernel", "udp_sendmsg")])
        crate = gateway.calls["user", "its own code"].calls["user", "convoy_io"]
        self.assertEqual(list(crate.calls), [("user", "convoy_io::udp::tx::Sender::run")])
        self.assertEqual((tree.depth(1), tree.depth(2)), (4, 2))

    def test_frames_that_are_too_narrow_are_left_out_and_names_keep_to_their_frames(self):
        samples = 990 * [sample("do_idle", command="swapper", pid=0)] + 10 * [sample(own=["a<b> & convoy_io::c"])]
        tree = stacks.fold(samples, lambda one: one.command)
        boxes = [xml.fromstring(box) for box in flame.frames(tree, 1.0, 1000, 11, 0.0, 100)]
        self.assertEqual([box[0].text for box in boxes], ["swapper 99.00 %", "do_idle 99.00 %"])
        boxes = [xml.fromstring(box) for box in flame.frames(tree, 1.0, 1000, 1, 0.0, 100)]
        self.assertEqual(boxes[-1][0].text, "a<b> & convoy_io::c 1.00 %")
        # 9.5 pixels are too few for a letter; the frames above the others' begin where those end.
        self.assertEqual((len(boxes[-1]), boxes[-1].get("x"), boxes[-1].get("width")), (2, "990.0", "9.5"))


if __name__ == "__main__":
    unittest.main()
