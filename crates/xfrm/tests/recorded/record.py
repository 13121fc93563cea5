#!/usr/bin/env python3
"""Records what `ip xfrm` and the kernel say to each other: run as root, writes ip.txt beside this file.

Each command runs under strace in network namespaces of their own. In the file a line `$ …` is a command,
`> hex` a datagram to the kernel and `< hex` one from it, `! text` what `ip` printed as an error."""
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STRACE = ["strace", "-f", "-e", "trace=socket,sendmsg,sendto,recvmsg", "-e", "read=all", "-e", "write=all"]
KEY16 = "0x000102030405060708090a0b0c0d0e0f"
KEY20 = KEY16 + "10111213"
KEY32 = KEY16 + "101112131415161718191a1b1c1d1e1f"
KEY36 = KEY32 + "20212223"
KEY64 = KEY32 + KEY32[2:]
ID = "src 192.0.2.1 dst 192.0.2.2 proto esp"
ID6 = "src 2001:db8::1 dst 2001:db8::2 proto esp"
GCM = f"aead rfc4106(gcm(aes)) {KEY20} 128"
STATE = f"""
add {ID} spi 0x1000 mode tunnel {GCM}
update {ID6} spi 0x1001 mode tunnel reqid 7 aead rfc7539esp(chacha20,poly1305) {KEY36} 128 flag af-unspec
add {ID} spi 0x1002 mode transport enc cbc(aes) {KEY16} auth-trunc hmac(sha256) {KEY32} 128 sel src 192.0.2.1/32 dst 192.0.2.2/32 proto tcp sport 1000 dport 80
add {ID} spi 0x1003 mode beet enc aes {KEY16} auth sha1 {KEY20} reqid 16389 seq 0x2a
add {ID} spi 0x1004 mode tunnel enc rfc3686(ctr(aes)) {KEY20} auth-trunc hmac(sha512) {KEY64} 256 encap espinudp 4500 4501 198.51.100.7
add {ID} spi 0x1005 mode tunnel enc cipher_null "" auth sha256 {KEY32}
add {ID} spi 0x1006 mode tunnel aead rfc4309(ccm(aes)) {KEY16}101112 64 replay-window 32 flag esn noecn decap-dscp nopmtudisc
add {ID} spi 0x1007 mode tunnel {GCM} replay-window 4096 flag esn replay-seq 5 replay-oseq 6 replay-seq-hi 1 replay-oseq-hi 2
add {ID} spi 0x1008 mode tunnel {GCM} replay-window 16 replay-seq 5 replay-oseq 6
add {ID} spi 0x1009 mode tunnel {GCM} mark 0x10 mask 0xff output-mark 0x20 mask 0xf0 if_id 0x7b
add {ID} spi 0x100a mode tunnel {GCM} output-mark 0x21
add {ID} spi 0x100b mode tunnel {GCM} tfcpad 1200 extra-flag dont-encap-dscp oseq-may-wrap
add {ID} spi 0x100c mode tunnel {GCM} limit time-soft 100 limit time-hard 200 limit time-use-soft 300 limit time-use-hard 400 limit byte-soft 500 limit byte-hard 600 limit packet-soft 700 limit packet-hard 800
add {ID} spi 0x100d mode tunnel {GCM} encap espinudp-nonike 4500 4500 0.0.0.0 flag wildrecv icmp align4
add {ID} spi 0x100e mode tunnel {GCM} encap espintcp 4500 443 0.0.0.0
add {ID} spi 0x100f mode tunnel {GCM} offload dev lo dir in
add {ID} spi 0x1010 mode tunnel {GCM} ctx system_u:object_r:ipsec_spd_t:s0
add src 192.0.2.1 dst 192.0.2.2 proto ah spi 0x2000 mode transport auth-trunc hmac(sha384) {KEY32}{KEY16[2:]} 192
add src 192.0.2.1 dst 192.0.2.2 proto ah spi 0x2001 mode tunnel auth xcbc(aes) {KEY16}
add src 192.0.2.1 dst 192.0.2.2 proto comp spi 0x300 mode tunnel comp deflate
add src 2001:db8::1 dst 2001:db8::2 proto route2 mode ro coa 2001:db8::3
add src 2001:db8::1 dst 2001:db8::2 proto hao mode ro coa 2001:db8::3
add {ID} spi 0x1011 mode tunnel
add {ID} spi 0x1012 mode in_trigger {GCM}
add src 192.0.2.1 dst 192.0.2.2 proto comp spi 0x10000 mode tunnel comp deflate
add {ID} spi 0x1013 mode transport {GCM} tfcpad 100
allocspi {ID} min 0x1000 max 0x10ff mode tunnel reqid 9 seq 3
allocspi {ID6} mark 5 mask 7
allocspi src 192.0.2.1 dst 192.0.2.2 proto comp min 0x100 max 0xeffff
allocspi {ID} min 2 max 1
get {ID} spi 0x4000
get {ID} spi 0x4001 mark 1 mask 3
delete {ID} spi 0x4000
delete src 2001:db8::1 dst 2001:db8::2 proto hao
list
list src 192.0.2.0/24 dst 192.0.2.0/24 proto esp
count
deleteall
flush
flush proto ah
""".strip().splitlines()
NET = "src 10.1.0.0/16 dst 10.2.0.0/16"
TMPL = "tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 16 mode tunnel"
POLICY = f"""
add {NET} dir out priority 375423 {TMPL}
add {NET} dir out priority 375423 {TMPL}
update {NET} dir out priority 3 tmpl src 2001:db8::1 dst 2001:db8::2 proto esp spi 0x1234 mode tunnel
add {NET} dir in tmpl src 192.0.2.2 dst 192.0.2.1 proto comp reqid 16 mode tunnel level use tmpl proto esp reqid 16 mode transport
add {NET} dir fwd action block flag localok icmp
add src 2001:db8:1::/48 dst 2001:db8:2::/48 proto udp sport 500 dport 4500 dir out mark 0x10 mask 0xff if_id 42 {TMPL}
add src 10.1.0.1 dst 10.2.0.1 dev lo proto icmp type 8 code 0 dir out priority 1
add src 10.1.0.1 dst 10.2.0.2 proto gre key 5 dir out ptype sub
add src 10.9.0.0/24 dst 10.2.0.0/16 dir out index 0x1001 limit time-soft 100 limit time-hard 200 limit byte-soft 5 limit packet-hard 9
add src 10.9.1.0/24 dst 10.2.0.0/16 dir in index 0x1001
add src 10.9.2.0/24 dst 10.2.0.0/16 dir in ctx system_u:object_r:ipsec_spd_t:s0
add {NET} dir in ptype sub {TMPL} {TMPL} {TMPL} {TMPL} {TMPL} {TMPL}
add src 10.3.0.0/16 dst 10.4.0.0/16 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel level use
add src 10.3.0.0/16 dst 10.4.0.0/16 dir out tmpl src 2001:db8::1 dst 2001:db8::2 proto esp mode transport
get {NET} dir out
get index 0x1001 dir out
get {NET} dir out mark 9
get src 2001:db8:1::/48 dst 2001:db8:2::/48 proto udp sport 500 dport 4500 dir out mark 0x10 mask 0xff if_id 42
list
count
delete index 0x1001 dir out
delete {NET} dir fwd
delete {NET} dir fwd
set hthresh4 24 24 hthresh6 64 64
set hthresh4 33 0
getdefault
setdefault in block fwd accept out accept
getdefault
flush
flush ptype sub
""".strip().splitlines()


def datagrams(trace):
    """The datagrams of the XFRM sockets in a trace: direction and hex."""
    sockets = set()
    call = None
    data = ""
    for line in trace.splitlines() + ["exit"]:
        line = re.sub(r"^\d+ +", "", line)
        dumped = re.match(r" \| [0-9a-f]{5}  ((?:[0-9a-f]{2} ?| )*)", line)
        if dumped:
            data += re.sub(r"\s", "", dumped[1][:49])
            continue
        if re.match(r" \* \d+ bytes in buffer", line):
            continue
        if call and data:
            yield call, data
        call, data = None, ""
        found = re.match(r"socket\(AF_NETLINK.*NETLINK_XFRM\) = (\d+)", line)
        if found:
            sockets.add(found[1])
        found = re.match(r"(sendmsg|sendto|recvmsg)\((\d+), ", line)
        if found and found[2] in sockets and "MSG_PEEK" not in line and " = -1" not in line:
            call = "<" if found[1] == "recvmsg" else ">"


def run(command, out):
    """Runs one command, and writes down what was said."""
    with tempfile.NamedTemporaryFile("r") as trace:
        words = [word.strip('"') for word in command.split()]
        done = subprocess.run(STRACE + ["-o", trace.name] + words, capture_output=True, text=True)
        out.write(f"$ {command}\n")
        for direction, hexed in datagrams(trace.read()):
            out.write(f"{direction} {hexed}\n")
        for line in done.stderr.splitlines():
            out.write(f"! {line}\n")


def events(out):
    """What `ip xfrm monitor` hears while policies come, are used, expire and go."""
    for command in [
        "ip link add v0 type veth peer name v1",
        "ip link set v1 up",
        "ip link set v0 up",
        "ip addr add 10.1.0.1/32 dev v0",
        "ip route add 10.2.0.0/16 dev v0",
    ]:
        subprocess.run(command.split(), check=True)
    with tempfile.NamedTemporaryFile("r") as trace:
        monitor = subprocess.Popen(
            STRACE + ["-o", trace.name, "ip", "xfrm", "monitor"], stdout=subprocess.DEVNULL
        )
        time.sleep(1)
        for command in [
            f"ip xfrm policy add {NET} dir out {TMPL} if_id 0",
            f"ip xfrm policy update {NET} dir out priority 5 {TMPL}",
            "ping -c 1 -W 1 -I 10.1.0.1 10.2.0.1",
            f"ip xfrm policy delete {NET} dir out",
            "ip xfrm policy add src 10.5.0.0/16 dst 10.6.0.0/16 dir in limit time-soft 1 limit time-hard 2",
            "ip xfrm policy add src 2001:db8:1::/48 dst 2001:db8:2::/48 dir fwd mark 1 if_id 2",
            "ip xfrm policy setdefault out block",
            "ip xfrm policy setdefault out accept",
            f"ip xfrm state allocspi {ID} min 0x5000 max 0x5000",
            f"ip xfrm state delete {ID} spi 0x5000",
            "sleep 4",
            "ip xfrm policy flush",
            f"ip xfrm state allocspi {ID} min 0x5001 max 0x5001",
            "ip xfrm state flush",
        ]:
            subprocess.run(command.split(), capture_output=True)
        time.sleep(1)
        subprocess.run(["pkill", "-P", str(monitor.pid)])
        monitor.wait()
        out.write("$ ip xfrm monitor\n")
        for direction, hexed in datagrams(trace.read()):
            out.write(f"{direction} {hexed}\n")


def main():
    if os.environ.get("RECORD_INSIDE") != "1":
        os.environ["RECORD_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, __file__])
    release = os.uname().release.split("-")[0]
    iproute = subprocess.run(["ip", "-V"], capture_output=True, text=True).stdout.strip()
    with open(os.path.join(HERE, "ip.txt"), "w") as out:
        out.write(f"# Recorded by record.py: {iproute}, Linux {release}.\n")
        for command in STATE:
            run(f"ip xfrm state {command}", out)
        for command in POLICY:
            run(f"ip xfrm policy {command}", out)
        events(out)


if __name__ == "__main__":
    main()
