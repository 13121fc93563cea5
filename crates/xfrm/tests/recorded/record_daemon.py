#!/usr/bin/env python3
"""Records what strongSwan's charon and a running Convoy say to each other: writes charon-on-convoy.txt beside
this file, from a trace of the demonstration. As root:

    strace -f -yy -xx -s 65536 -e trace=sendmsg,recvmsg -o TRACE convoy demo ike --seconds 1
    record_daemon.py TRACE

The lines are those of ip.txt. Of the daemon that begins, its first tunnel from the start to the end, and the
second one until its key has been replaced once. Keys are those of the demonstration, made up for it and
gone with it."""
import os
import re
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CALL = re.compile(r"^(\d+) (sendmsg|recvmsg)\(\d+<UNIX[A-Z-]*:\[(\d+)")
RESUMED = re.compile(r"^(\d+) <\.\.\. (?:sendmsg|recvmsg) resumed>")
DATA = re.compile(r'iov_base="((?:\\x[0-9a-f]{2})*)"')
ALLOCSPI, DELSA, DELPOLICY = 0x16, 0x11, 0x14


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


def first_initiator(sockets):
    """The requests of a daemon that makes SAs, begins two tunnels and replaces keys."""
    for talk in sockets.values():
        asked = [kind for direction, kind, _ in talk if direction == ">"]
        # Who begins asks for no SPI before it hears of its peer, and takes its policies away itself.
        if asked.count(ALLOCSPI) > 2 and asked.count(DELPOLICY) >= 3:
            return talk
    sys.exit("no daemon in this trace makes two tunnels and replaces keys")


def sections(talk):
    """Cuts what was said into its parts, with their names."""
    names = iter(["start", "tunnel 1 comes", "tunnel 1 goes", "tunnel 2 comes", "tunnel 2 gets a new key"])
    ends = iter([(ALLOCSPI,), (DELPOLICY,), (ALLOCSPI,), (0x12, 0x15), ()])
    part, until = [], next(ends)
    for direction, kind, data in talk:
        if direction == ">" and kind in until:
            yield next(names), part
            part, until = [], next(ends)
        part.append((direction, data))
        if direction == "<" and not until and DELSA in [struct.unpack_from("=H", d, 4)[0] for _, d in part]:
            yield next(names), part
            return


def main():
    talk = first_initiator(datagrams(sys.argv[1]))
    ask = ["dpkg-query", "-W", "-f", "${Version}", "charon-systemd"]
    version = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
    with open(os.path.join(HERE, "charon-on-convoy.txt"), "w") as out:
        out.write(f"# Recorded by record_daemon.py: charon-systemd {version}, unmodified, on Convoy.\n")
        for name, part in sections(talk):
            out.write(f"$ {name}\n")
            for direction, data in part:
                out.write(f"{direction} {data.hex()}\n")


if __name__ == "__main__":
    main()
