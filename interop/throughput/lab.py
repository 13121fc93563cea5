"""Four namespaces in a row, the processes in them, and the removal of both.

      host A ──────── gateway A ═════════════ gateway B ──────── host B
      eth0         lan        wire       wire        lan         eth0
      10.1.0.2   10.1.0.1  198.51.100.1  198.51.100.2  10.2.0.1   10.2.0.2

Every link is a veth pair with MTU 1500 and the offloads a veth has by default. The gateways forward,
but do not know each other's inner network: what arrives there went through the candidate.
"""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

PREFIX = "convoy-tp"
# Where WireGuard programs of all namespaces make their sockets, and what ours begin with.
SOCKETS = pathlib.Path("/var/run/wireguard")
SOCKET_PREFIX = "convoy"
MTU = 1500
WIRE = {"a": "198.51.100.1", "b": "198.51.100.2"}
LAN = {"a": "10.1.0.1", "b": "10.2.0.1"}
HOST = {"a": "10.1.0.2", "b": "10.2.0.2"}
NET = {"a": "10.1.0.0/24", "b": "10.2.0.0/24"}
SIDES = (("a", "b"), ("b", "a"))
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A candidate could not be set up or measured; the text says why."""


def run(*command, timeout=30, env=None, good=(0,)):
    """Runs a command to its end and returns its output; any exit status that is not good is an error."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout, check=False, env=env,
        )
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"{' '.join(command)}: no end within {timeout} s") from expired
    if done.returncode not in good:
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout.strip()[-1500:]}")
    return done.stdout


def wait_for(what, true, seconds=15.0):
    """Waits until `true()` holds."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)


def prepare_child():
    """In a child before it becomes its program."""
    # No orphan is left even when this script is killed.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Each program has a session of its own, and where sessions are scheduled as groups, only the group's
    # nice value counts beside others.
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as group:
            group.write(str(os.getpriority(os.PRIO_PROCESS, 0)))
    except OSError:
        pass


class Process:
    """A program that runs in a namespace, with its output in a file."""

    def __init__(self, namespace, command, log, env=None):
        self.name = pathlib.Path(str(command[0])).name
        self.log = log
        with open(log, "wb") as output:
            self.child = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=prepare_child, env=env,
            )

    @property
    def pid(self):
        """`ip netns exec` becomes the program, so this is the program's own."""
        return self.child.pid

    def tail(self):
        """The end of what it wrote."""
        return self.log.read_text(errors="replace").strip()[-1500:]

    def check(self):
        """Raises if it has ended."""
        if self.child.poll() is not None:
            raise Failed(f"{self.name} ended with status {self.child.returncode}\n{self.tail()}")

    def cpu_seconds(self):
        """User and system time of all its threads."""
        return cpu_seconds(self.pid)


def cpu_seconds(pid):
    """User and system time of a process, 0 if it has ended."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Lab:
    """Namespaces, processes and a folder; all of them are gone when the `with` ends."""

    def __init__(self, queues=1):
        self.queues = queues  # of each end of a link, for gateways that read an interface with several workers
        self.tag = f"{PREFIX}-{os.getpid()}"
        self.host = {side: f"{self.tag}-host-{side}" for side in "ab"}
        self.gateway = {side: f"{self.tag}-gw-{side}" for side in "ab"}
        self.folder = None
        self.processes = []
        self.leftovers = []  # files elsewhere that a program makes and does not always remove

    def __enter__(self):
        try:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.tag}-"))
            self.build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def build(self):
        for namespace in (*self.host.values(), *self.gateway.values()):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            # A reverse-path filter inherited from the machine would judge routes that are not the subject.
            for scope in ("all", "default"):
                self.sysctl(namespace, f"net.ipv4.conf.{scope}.rp_filter=0")
        self.cable((self.gateway["a"], "wire", f"{WIRE['a']}/24"), (self.gateway["b"], "wire", f"{WIRE['b']}/24"))
        for side in "ab":
            self.cable((self.host[side], "eth0", f"{HOST[side]}/24"), (self.gateway[side], "lan", f"{LAN[side]}/24"))
            run("ip", "-n", self.host[side], "route", "add", "default", "via", LAN[side])
            self.sysctl(self.gateway[side], "net.ipv4.ip_forward=1")

    @staticmethod
    def sysctl(namespace, setting):
        key, value = setting.split("=")
        path = "/proc/sys/" + key.replace(".", "/")
        run("ip", "netns", "exec", namespace, "sh", "-c", f"echo {value} > {path}")

    def cable(self, one, other):
        queues = ("numtxqueues", self.queues, "numrxqueues", self.queues) if self.queues > 1 else ()
        run("ip", "link", "add", one[1], "mtu", MTU, *queues, "netns", one[0], "type", "veth",
            "peer", "name", other[1], "mtu", MTU, *queues, "netns", other[0])
        for namespace, link, address in (one, other):
            run("ip", "-n", namespace, "address", "add", address, "dev", link)
            run("ip", "-n", namespace, "link", "set", link, "up")

    def start(self, namespace, *command, log=None, env=None):
        """Starts a program in a namespace."""
        log = self.folder / (log or f"process-{len(self.processes)}.log")
        process = Process(namespace, command, log, env)
        self.processes.append(process)
        return process

    def stop(self, processes):
        """Ends programs: asks, and after five seconds insists."""
        for process in processes:
            if process.child.poll() is None:
                process.child.terminate()
        end = time.monotonic() + 5
        for process in processes:
            try:
                process.child.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.child.kill()
                process.child.wait()
        self.processes = [process for process in self.processes if process not in processes]

    def inside(self, namespace, *command, timeout=30):
        """Runs a command in a namespace to its end."""
        return run("ip", "netns", "exec", namespace, *command, timeout=timeout)

    def remove(self):
        """Ends and deletes everything; a second Ctrl-C does not interrupt it."""
        with undisturbed():
            self.stop(list(self.processes))
            for namespace in (*self.host.values(), *self.gateway.values()):
                remove_namespace(namespace)
            for path in self.leftovers:
                path.unlink(missing_ok=True)
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)


class undisturbed:
    """While this lasts, the signals that end a program from outside are ignored."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self):
        self.before = {number: signal.signal(number, signal.SIG_IGN) for number in self.SIGNALS}

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)


def remove_namespace(namespace):
    """Deletes a namespace of ours, and ends what still runs in it."""
    if not pathlib.Path("/run/netns", namespace).exists():
        return
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    for pid in listed.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def sweep():
    """Deletes what this run or one that was killed has left; returns the names."""
    left = []
    with undisturbed():
        for path in pathlib.Path("/run/netns").glob(f"{PREFIX}-*"):
            if is_left(path.name):
                remove_namespace(path.name)
                left.append(path.name)
        for path in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}-*"):
            if is_left(path.name) and path.is_dir() and path.lstat().st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
                left.append(path.name)
        for path in SOCKETS.glob(f"{SOCKET_PREFIX}*.sock"):
            if is_left(path.name):
                path.unlink(missing_ok=True)
                left.append(path.name)
    return left


def is_left(name):
    """Whether it is ours by its name, and of a run that needs it no more. (No lab is up meanwhile.)"""
    run_of = re.match(rf"{PREFIX}-(\d+)-|{SOCKET_PREFIX}(\d+)[ab]\.sock$", name)
    if not run_of:
        return False
    pid = run_of[1] or run_of[2]
    return int(pid) == os.getpid() or not pathlib.Path("/proc", pid).exists()
