#!/usr/bin/env python3
"""Records what an IKE daemon and a running Convoy say to each other: writes charon-on-convoy.txt or
pluto-on-convoy.txt beside this file, from a trace. As root, of strongSwan's charon in the demonstration, or of
Libreswan's pluto (interop/install-libreswan.sh) in the tests, where STRONGSWAN is what `cargo test -p convoy
--test strongswan --no-run` builds:

    trace() { strace -f -yy -xx -s 65536 -e trace=sendmsg,recvmsg -o TRACE "$@"; }
    trace convoy demo ike --seconds 1
    record_daemon.py charon TRACE
    trace STRONGSWAN plutos_make_tunnels_of_every_shape rekeys_of_pluto_lose_nothing
    record_daemon.py pluto TRACE

The lines are those of ip.txt. Of a daemon that begins, its first tunnel from the start to the end, and another
one until its key has been replaced once. Keys are those of the demonstration or the test, made up for it and
gone with it."""
import os
import re
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CALL = re.compile(r"^(\d+) +(sendmsg|recvmsg)\(\d+<UNIX[A-Z-]*:\[(\d+)")
RESUMED = re.compile(r"^(\d+) +<\.\.\. (?:sendmsg|recvmsg) resumed>")
DATA = re.compile(r'iov_base="((?:\\x[0-9a-f]{2})*)"')
ALLOCSPI, DELSA, GETSA, DELPOLICY, GETPOLICY, UPDPOLICY = 0x16, 0x11, 0x12, 0x14, 0x15, 0x19


def datagrams(path):
    """What went over each UNIX socket and looks like XFRM: by socket, lists of direction and bytes."""
    sockets, begun = {}, {}
    with open(path, errors="replace") as trace:
        for line in trace:
            found = CALL.match(line)
            if found:
                call = found[3], ">" if found[2] == "sendmsg" else "<"
                if 'iov_base="' not in line:
                    begun[found[1]] = call
                    continue
            else:
                found = RESUMED.match(line)
                if not found or found[1] not in begun:
                    continue
                call = begun.pop(found[1])
            data = DATA.search(line)
            if not data or " = -1" in line:
                continue
            data = bytes.fromhex(data[1].replace("\\x", ""))
            if len(data) >= 16:
                length, kind = struct.unpack_from("=IH", data)
                if length <= len(data) and (kind == 2 or 0x10 <= kind <= 0x29):
                    sockets.setdefault(call[0], []).append((call[1], kind, data))
    return sockets


def asked(talk, kinds):
    """How often a daemon asked for one of these."""
    return sum(direction == ">" and kind in kinds for direction, kind, _ in talk)


def cut(talk, ends):
    """Cuts what was said into parts: each ends before a request of one of these kinds, the last one after what
    its last ones answer."""
    parts, ends = [[]], iter(ends)
    until = next(ends)
    for direction, kind, data in talk:
        if direction == ">" and kind in until:
            parts.append([])
            until = next(ends, ())
        parts[-1].append((direction, kind, data))
    return parts


def charon(talks):
    """The parts of a charon that begins."""
    # Who begins asks for no SPI before it hears of its peer, and takes its policies away itself.
    talk = next(talk for talk in talks if asked(talk, [ALLOCSPI]) > 2 and asked(talk, [DELPOLICY]) >= 3)
    parts = cut(talk, [(ALLOCSPI,), (DELPOLICY,), (ALLOCSPI,), (GETSA, GETPOLICY)])
    names = ["start", "tunnel 1 comes", "tunnel 1 goes", "tunnel 2 comes", "tunnel 2 gets a new key"]
    last = [at for at, (direction, kind, _) in enumerate(parts[4]) if (direction, kind) == (">", DELSA)][0]
    parts[4] = parts[4][:last + 2]
    return zip(names, parts)


def pluto(talks):
    """The parts of two plutos, of which one makes a tunnel and ends it, and one replaces keys. Between these
    they ask often what SAs have carried; once is enough."""
    def begins(talk):
        return asked(talk, [ALLOCSPI]) > 2 and talk[0][:2] == (">", UPDPOLICY)
    comes = next(talk for talk in talks if begins(talk) and asked(talk, [DELPOLICY]) > 5)
    keeps = next(talk for talk in talks if begins(talk) and asked(talk, [DELPOLICY]) <= 5)
    start, first, first_goes = cut(comes, [(ALLOCSPI,), (GETSA,), (ALLOCSPI,)])[:3]
    goes = next(at for at, (direction, kind, _) in enumerate(first_goes) if (direction, kind) == (">", UPDPOLICY))
    second, key = cut(keeps, [(ALLOCSPI,), (ALLOCSPI,), (ALLOCSPI,)])[1:3]
    parts = [start, first + first_goes[:goes], first_goes[goes:], second, key]
    names = ["start", "tunnel 1 comes", "tunnel 1 goes", "tunnel 2 comes", "tunnel 2 gets a new key"]
    return zip(names, [once(part) for part in parts])


def once(part):
    """What was said, without what was asked of the same SA before."""
    seen, kept = set(), []
    for at in range(0, len(part) - 1, 2):
        (_, kind, data), answer = part[at], part[at + 1]
        if kind != GETSA or data[16:] not in seen:
            kept += [part[at], answer]
        seen.add(data[16:])
    return kept


def version(daemon):
    """Which one it was."""
    if daemon == "pluto":
        folder = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "tools/libreswan/usr/libexec/ipsec")
        said = subprocess.run([os.path.join(folder, "pluto"), "--version"], capture_output=True, text=True).stdout
        return "pluto of " + " ".join(said.split()[:2])
    ask = ["dpkg-query", "-W", "-f", "${Version}", "charon-systemd"]
    return "charon-systemd " + subprocess.run(ask, capture_output=True, text=True).stdout.strip()


def main():
    daemon, trace = sys.argv[1:]
    parts = {"charon": charon, "pluto": pluto}[daemon](list(datagrams(trace).values()))
    with open(os.path.join(HERE, f"{daemon}-on-convoy.txt"), "w") as out:
        out.write(f"# Recorded by record_daemon.py: {version(daemon)}, unmodified, on Convoy.\n")
        for name, part in parts:
            out.write(f"$ {name}\n")
            for direction, _, data in part:
                out.write(f"{direction} {data.hex()}\n")


if __name__ == "__main__":
    main()
