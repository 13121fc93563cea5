"""Stacks of `perf script`: read, sorted by what the processor did, and merged for a flame graph.

A release build of Convoy keeps no frame pointers, so of a program's own code only the innermost frame is right. The kernel's
stacks are right in full. Frames of a program below its innermost one are therefore left out.
"""

import collections
import re

KERNEL = 1 << 63  # addresses of the kernel are above
SOFT_INTERRUPT = re.compile(r"handle_softirqs|__do_softirq$")
WORKER = re.compile(r"convoy-w\d")  # threads of Convoy that carry packets
FRAME = re.compile(r"\s+([0-9a-f]+) (.*) \(([^()]*(?: \(deleted\))?)\)$")
# Frames that every system call or interrupt has, and that say nothing.
DOORS = re.compile(r"(asm_|entry_|__x64_sys_|__arm64_sys_|x64_sys_call|do_syscall_64|el0|invoke_syscall|common_startup|start_kernel"
                   r"|rest_init|x86_64_start|__pfx_|secondary_startup|start_secondary)")

Frame = collections.namedtuple("Frame", "name is_kernel image", defaults=("",))
Sample = collections.namedtuple("Sample", "command pid frames")  # the innermost frame comes first


def parse(lines):
    """Samples in what `perf script -F comm,pid,ip,sym,dso` prints."""
    command, pid, frames = None, None, []
    for line in lines:
        found = FRAME.match(line)
        if found:
            frames.append(frame(*found.groups()))
        elif line.strip():
            command, pid = line.rsplit(maxsplit=1)
            command, pid, frames = command.strip(), int(pid), []
        elif command is not None:
            yield Sample(command, pid, frames)
            command = None
    if command is not None:
        yield Sample(command, pid, frames)


def frame(address, symbol, image):
    # What a compiler appends to parts of a function.
    symbol = re.sub(r"\.(isra|constprop|part|cold|llvm)\b.*", "", symbol.partition("+0x")[0])
    return Frame(symbol, bool(int(address, 16) & KERNEL), image.removesuffix(" (deleted)").rpartition("/")[2])


HOSTS = "hosts: TCP and iperf3"
CRYPTO = "Convoy: crypto"
CHECKSUMS = "Convoy: checksums"
COPIES = "Convoy: copies"
OFFLOAD = "Convoy: cutting and joining TCP segments"
PORTS = "Convoy: sockets, rings and TUN interface"
PIPELINE = "Convoy: policies, SAs, headers, worker's loop"
THREADS = "Convoy: other threads, with their system calls"
OTHER_GATEWAY = "gateways: their own code"
KERNEL_COPIES = "kernel: copying packets"
MEMORY = "kernel: allocating and freeing packets"
NETFILTER = "kernel: netfilter"
ROUTING = "kernel: routing"
WAKING = "kernel: sleeping and waking"
SOFT = "kernel: soft interrupts, receiving stack"
TUN_WRITE = "kernel: writing to TUN, and forwarding in it"
TUN_READ = "kernel: reading from TUN"
SENDING = "kernel: sending, without soft interrupts"
RECEIVING = "kernel: receiving calls"
ENTRY = "kernel: entering and leaving system calls"
IDLE = "idle"
REST = "kernel: rest"
OTHERS = "other programs, perf itself"
# In the order of a table.
CATEGORIES = (CRYPTO, CHECKSUMS, COPIES, OFFLOAD, PORTS, PIPELINE, THREADS, OTHER_GATEWAY, TUN_READ, TUN_WRITE, SENDING, RECEIVING,
              SOFT, NETFILTER, ROUTING, KERNEL_COPIES, MEMORY, WAKING, ENTRY, REST, HOSTS, OTHERS, IDLE)


def rules(*pairs):
    return [(re.compile(pattern), category) for pattern, category in pairs]


# Names begin like this; the first that fits counts.
KERNEL_RULES = rules(
    (r"(__pi_)?mem(cpy|move)|_*copy_(from|to)_|rep_movs|skb_store_bits|skb_copy_bits|csum_and_copy", KERNEL_COPIES),
    (r"nf_|__nf_|nft_|ipt_", NETFILTER),
    (r"_*fib\d?_|ip6?_route_|ip_rcv_finish_core|ip_mkroute|__mkroute|rt_|dst_", ROUTING),
    (r"_*alloc_skb|alloc_skb_with|sock_alloc_send|_*build_skb|_*napi_(build|alloc)|skb_clone|skb_release|_*kfree_skb|consume_skb"
     r"|skb_free|skb_attempt_defer|skb_defer_free|napi_consume|sock_wfree", MEMORY),
    (r"kv?free|kmalloc|__kmalloc|kmem_cache|_{2,3}slab|_*alloc_(frozen_)?pages|get_page_from|_*free_frozen|free_unref|page_pool"
     r"|page_frag|rcu_core", MEMORY),
    (r"try_to_wake|__wake_up|ep_poll|sock_def_readable|(__)?schedule|do_sys_poll|do_poll|__do_sys_ppoll|do_epoll|do_select"
     r"|core_sys_select|do_pselect|hrtimer_nanosleep|do_nanosleep|futex_|do_futex|exit_to_user_mode_loop|irqentry_exit_to_user",
     WAKING),
    (r"_*tcp_(?!gro)|tcp_v[46]_|inet_csk|__inet_lookup|sk_stream", HOSTS),
    (r"handle_softirqs|_*do_softirq$|net_rx_action|_*napi_poll|bpf_", SOFT),
    (r"tun_get_user|tun_chr_write|tun_sendmsg", TUN_WRITE),
    (r"tun_do_read|tun_chr_read|tun_recvmsg|tun_ring_recv", TUN_READ),
    (r"__sys_send|do_writev|xsk_sendmsg", SENDING),
    (r"__sys_recv|do_recvmmsg", RECEIVING),
    (r"__seccomp|__secure_computing|syscall_trace|do_syscall_64|entry_SYSCALL|syscall_(enter|exit|return)|el0_svc|invoke_syscall",
     ENTRY),
    (r"do_idle|cpu_startup_entry|cpuidle|default_idle|pv_native_safe_halt|arch_cpu_idle", IDLE),
)
CONVOY_RULES = rules(
    (r".*\bconvoy_crypto::", CRYPTO),
    (r".*\bchecksum", CHECKSUMS),
    (r"(__)?mem(cpy|move|set)|.*copy_from_slice", COPIES),
    (r".*\bconvoy_io::offload", OFFLOAD),
    (r".*\bconvoy_io::|(__GI_|__libc_)?_*(readv?|writev?|sendm?msg|sendto|recvm?msg)$", PORTS),
    (r"", PIPELINE),
)


def category(sample, gateways):
    """What the processor did: the innermost frame that a rule knows decides. `gateways` has programs by process."""
    program = gateways.get(sample.pid)
    if not any(frame.is_kernel and SOFT_INTERRUPT.match(frame.name) for frame in sample.frames):
        if sample.command.startswith("iperf3"):
            return HOSTS
        if program is None and not is_of_kernel(sample):
            return OTHERS
        if program == "convoy" and not WORKER.match(sample.command):
            return THREADS
    if sample.frames and not sample.frames[0].is_kernel:
        return own_code(sample.frames[0].name) if program == "convoy" else OTHER_GATEWAY
    for frame in sample.frames:
        if not frame.is_kernel:
            break
        for pattern, found in KERNEL_RULES:
            if pattern.match(frame.name):
                return found
    return REST


def is_of_kernel(sample):
    """True for the idle task and for threads of the kernel."""
    return sample.pid == 0 or any(frame.name == "kthread" for frame in sample.frames)


def own_code(function):
    """Category of a function of Convoy's."""
    return next(found for pattern, found in CONVOY_RULES if pattern.match(function))


def shares(samples, gateways):
    """Samples of each category, in the order of the table; those without any are left out."""
    counts = collections.Counter(category(sample, gateways) for sample in samples)
    return {name: counts[name] for name in CATEGORIES if counts[name]}


def rounded(counts, units=1000):
    """Shares in whole units that add up to all of them: what is left over goes to the largest remainders."""
    total = sum(counts.values())
    exact = {name: count * units / total for name, count in counts.items()}
    whole = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: whole[name] - exact[name])
    for name in by_remainder[:units - sum(whole.values())]:
        whole[name] += 1
    return whole


class Node:
    """A frame, and the frames that it called, by where they ran (`process`, `user`, `kernel`) and name."""

    def __init__(self):
        self.count = 0
        self.calls = collections.defaultdict(Node)

    def depth(self, least):
        """Levels above this one, of frames with as many samples at least."""
        return max((1 + node.depth(least) for node in self.calls.values() if node.count >= least), default=0)


def fold(samples, label):
    """The tree of all samples; `label` names the process of a sample."""
    root = Node()
    for sample in samples:
        node = root
        node.count += 1
        for key in (("process", label(sample)), *path(sample.frames)):
            node = node.calls[key]
            node.count += 1
    return root


def path(frames):
    """Frames from the outermost inwards, as far as they can be right. A program's own code is put below its crate or library."""
    inwards = [frame for frame in reversed(frames) if frame.is_kernel]
    if inwards:
        told = [frame for frame in inwards[:-1] if not DOORS.match(frame.name)]
        return [("kernel", frame.name) for frame in (*told, inwards[-1])]
    if not frames:
        return []
    crate = re.search(r"\bconvoy_\w+", frames[0].name)
    return [("user", name) for name in ("its own code", crate[0] if crate else frames[0].image, frames[0].name)]
