#!/usr/bin/env bash
# A real Linux kernel with ESP as the peer: a distribution's kernel in an emulated machine, without KVM.
#
#   kernel-esp-peer.sh start -s SETUP.sh [-e FILE]...   boots, runs SETUP.sh inside, returns when it is ready
#   kernel-esp-peer.sh exec 'ip -s xfrm state'          runs a shell command inside; its output, its exit status
#   kernel-esp-peer.sh stop                             ends the machine and removes what `start` made
#
# -e adds a program with its shared libraries, as /bin/NAME. The machine has one network card, eth0, at the
# other end of the tap interface $TAP in the namespace $NS.
#
# Needs qemu-system-x86_64, busybox (static), ip, depmod, cpio, and an apt that can download the kernel
# package, which is unpacked into $CACHE and never installed. Ends with 77 where one of these is missing.
#
# Environment: NS (namespace, made by `start` if it is not there), TAP, TAP_ADDRS (addresses of the tap),
#   CACHE (what outlives a run), RUN (this machine's own files), KERNEL_PACKAGE, MEMORY (MiB), TIMEOUT (of exec, s)
set -euo pipefail

# shellcheck source=interop/cache.sh
[ -n "${CACHE:-}" ] || { . "$(dirname "$0")/cache.sh" && CACHE=$cache/kernel-peer; }
RUN=${RUN:-$CACHE/run}
NS=${NS:-convoy-kernel}
TAP=${TAP:-tap0}
TAP_ADDRS=${TAP_ADDRS:-192.0.2.1/24 2001:db8:a::1/64}
KERNEL_PACKAGE=${KERNEL_PACKAGE:-linux-image-cloud-amd64}
MEMORY=${MEMORY:-256}
TIMEOUT=${TIMEOUT:-60}

# ESP and what its algorithms need. Without drbg, which wants a hash of its own, no SA can be added.
modules="virtio_pci virtio_net dummy esp4 esp6 xfrm_user xfrm4_tunnel xfrm6_tunnel drbg gcm ctr seqiv echainiv
 ghash_generic aesni_intel ghash_clmulni_intel hmac sha256_generic sha512_generic sha1_generic md5 cbc ccm cmac
 xcbc des_generic camellia_generic crypto_null authenc authencesn chacha20poly1305 chacha_generic poly1305_generic ah4 ah6"

fail() { echo "kernel-esp-peer: $*" >&2; exit 2; }
cannot() { echo "kernel-esp-peer: $*" >&2; exit 77; }

alive() { [ -e "$RUN/pid" ] && kill -0 "$(cat "$RUN/pid")" 2> /dev/null; }

in_ns() { ip netns exec "$NS" "$@"; }

# --- the kernel ---------------------------------------------------------------------------------

fetch_kernel() {
    local root=$CACHE/$KERNEL_PACKAGE real
    kernel_root=$root
    if [ ! -e "$root/.complete" ]; then
        command -v apt-get > /dev/null || cannot "no apt to download $KERNEL_PACKAGE with"
        real=$(real_package)
        if [ -z "$real" ] && [ "$(id -u)" -eq 0 ]; then
            apt-get -q -o DPkg::Lock::Timeout=600 update > /dev/null 2>&1 || true
            real=$(real_package)
        fi
        [ -n "$real" ] || cannot "apt knows no $KERNEL_PACKAGE"
        rm -rf "$root"
        mkdir -p "$root"
        (cd "$root" && apt-get -q -q -o APT::Sandbox::User=root -o DPkg::Lock::Timeout=600 download "$real") ||
            cannot "cannot download $real"
        dpkg -x "$root"/*.deb "$root"
        rm -f "$root"/*.deb
        # An unpacked package has no modules.dep yet.
        depmod -b "$root" "$(kernel_version "$root")"
        touch "$root/.complete"
    fi
    version=$(kernel_version "$root")
    image=$root/boot/vmlinuz-$version
}

real_package() { apt-cache depends "$KERNEL_PACKAGE" 2> /dev/null | awk '/Depends: linux-image-/ {print $2; exit}'; }

kernel_version() { basename "$(echo "$1"/lib/modules/*)"; }

# --- the root file system -----------------------------------------------------------------------

# add_program ROOT FILE: a program with its shared libraries
add_program() {
    local library
    install -D "$2" "$1/bin/$(basename "$2")"
    { ldd "$2" 2> /dev/null | grep -oE '/[^ ]+' || true; } | while read -r library; do
        install -D "$library" "$1$library"
    done
}

pack() { (cd "$1" && find . | cpio -o -H newc --quiet | gzip -1); }

make_initrd() {
    initrd=$CACHE/initrd-$version-5.gz
    [ -e "$initrd" ] && return
    local root module path
    root=$(mktemp -d)
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,modules}
    cp "$(command -v busybox)" "$root/bin/busybox"
    add_program "$root" "$(command -v ip)"
    for module in $modules; do
        modprobe -d "$kernel_root" -S "$version" -D "$module" 2> /dev/null || true
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r path; do
        cp "$path" "$root/modules/"
        basename "$path" >> "$root/modules/order"
    done
    write_init > "$root/init"
    chmod +x "$root/init"
    pack "$root" > "$initrd.part"
    mv "$initrd.part" "$initrd"
    rm -rf "$root"
}

# Commands arrive base64-coded over the second serial port, answers go back the same way.
write_init() {
    cat << 'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin 2> /dev/null
export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    options=
    [ "${module%%.*}" = dummy ] && options=numdummies=0
    insmod "/modules/$module" $options 2> /tmp/error || grep -q exists /tmp/error || echo "insmod $module: $(cat /tmp/error)"
done < /modules/order
# This busybox prefers its own applets to those in PATH.
ip() { /bin/ip "$@"; }
ip link set lo up
( set -e; . /setup.sh ) > /tmp/setup.log 2>&1
echo "$?" > /tmp/setup.status
stty -F /dev/ttyS1 raw -echo 2> /dev/null
exec 3<> /dev/ttyS1
printf '@@READY\n' >&3
while read -r word command <&3; do
    [ "$word" = @@RUN ] || continue
    ( eval "$(printf '%s' "$command" | base64 -d)" ) < /dev/null > /tmp/output 2>&1
    status=$?
    { base64 /tmp/output; printf '@@DONE %s\n' "$status"; } >&3
done
poweroff -f
INIT
}

# --- verbs --------------------------------------------------------------------------------------

start() {
    local setup= extra=() option
    while getopts s:e: option; do
        case $option in
            s) setup=$OPTARG ;;
            e) extra+=("$OPTARG") ;;
            *) exit 2 ;;
        esac
    done
    [ -r "$setup" ] || fail "start needs -s SETUP.sh"
    local command
    for command in qemu-system-x86_64 busybox ip depmod modprobe cpio gzip; do
        command -v "$command" > /dev/null || cannot "$command is not installed"
    done
    [ "$(id -u)" -eq 0 ] || cannot "needs root for the tap interface"
    [ -c /dev/net/tun ] || cannot "there is no /dev/net/tun"
    alive && fail "a machine is running already; stop it first"
    mkdir -p "$CACHE"
    fetch_kernel
    make_initrd
    rm -rf "$RUN"
    mkdir -p "$RUN/more"
    cp "$setup" "$RUN/more/setup.sh"
    for command in "${extra[@]}"; do add_program "$RUN/more" "$command"; done
    { cat "$initrd"; pack "$RUN/more"; } > "$RUN/initrd"
    wire_up
    boot
}

wire_up() {
    local address
    if ! [ -e "/run/netns/$NS" ]; then
        ip netns add "$NS"
        touch "$RUN/made-ns"
        ip -n "$NS" link set lo up
    fi
    if ! in_ns ip link show "$TAP" > /dev/null 2>&1; then
        in_ns ip tuntap add "$TAP" mode tap
        touch "$RUN/made-tap"
    fi
    for address in $TAP_ADDRS; do
        case $address in
            *:*) ip -n "$NS" addr replace "$address" dev "$TAP" nodad ;;
            *) ip -n "$NS" addr replace "$address" dev "$TAP" ;;
        esac
    done
    ip -n "$NS" link set "$TAP" up
}

boot() {
    mkfifo "$RUN/control.in" "$RUN/control.out"
    # -icount keeps the guest's clock sane on a busy host. Offloads are off so that the tap carries what a
    # wire would. vaes=off: some emulators get it wrong, and the kernel would use it.
    local card="virtio-net-pci,netdev=n0,mac=52:54:00:e5:00:02,romfile=,csum=off,guest_csum=off,gso=off"
    card+=",host_tso4=off,host_tso6=off,host_ufo=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,mrg_rxbuf=on"
    local line="console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr cryptomgr.notests=1 no_timer_check"
    line+=" random.trust_cpu=on net.ifnames=0 raid=noautodetect"
    # Not through in_ns: behind a function, $! would be a shell's and the emulator would outlive a kill.
    ip netns exec "$NS" qemu-system-x86_64 -accel tcg -icount shift=2 -M pc,usb=off,vmport=off,hpet=off -cpu max,vaes=off \
        -m "$MEMORY" -smp 1 -no-user-config -nodefaults -display none -no-reboot \
        -kernel "$image" -initrd "$RUN/initrd" -append "$line" \
        -serial "file:$RUN/console.log" -serial "pipe:$RUN/control" \
        -netdev "tap,id=n0,ifname=$TAP,script=no,downscript=no" -device "$card" \
        > "$RUN/qemu.log" 2>&1 < /dev/null &
    echo $! > "$RUN/pid"
    disown
    # Both ends stay open here so that neither side sees an end of file.
    exec 7<> "$RUN/control.out" 8<> "$RUN/control.in"
    local answer waited=0
    while :; do
        if read -r -t 1 answer <&7; then
            [ "${answer%$'\r'}" = @@READY ] && break
            continue
        fi
        waited=$((waited + 1))
        alive || { cat "$RUN/qemu.log" "$RUN/console.log" >&2; fail "the emulator ended early"; }
        [ "$waited" -lt 240 ] || { tail -n 30 "$RUN/console.log" >&2; stop; fail "not ready after 240 s"; }
    done
    local problems
    problems=$(run 'cat /tmp/setup.log; [ "$(cat /tmp/setup.status)" = 0 ]') || {
        echo "$problems" >&2
        stop
        fail "SETUP.sh failed inside the machine"
    }
    echo "Linux $version is up"
}

# run COMMAND: inside the machine, over file descriptors 7 and 8
run() {
    printf '@@RUN %s\n' "$(printf '%s' "$1" | base64 -w0)" >&8
    local answer text=
    while read -r -t "$TIMEOUT" answer <&7; do
        answer=${answer%$'\r'}
        case $answer in
            "@@DONE "*)
                printf '%s' "$text" | base64 -d
                return "${answer#@@DONE }"
                ;;
            @@*) ;;
            *) text+=$answer ;;
        esac
    done
    fail "no answer within $TIMEOUT s"
}

stop() {
    local pid
    if alive; then
        pid=$(cat "$RUN/pid")
        kill "$pid"
        for _ in $(seq 50); do
            kill -0 "$pid" 2> /dev/null || break
            sleep 0.1
        done
        ! kill -KILL "$pid" 2> /dev/null || echo "kernel-esp-peer: the emulator had to be killed" >&2
    fi
    if [ -e "$RUN/made-ns" ]; then
        ip netns del "$NS" || true
    elif [ -e "$RUN/made-tap" ]; then
        in_ns ip link del "$TAP" || true
    fi
    rm -rf "$RUN"
}

verb=${1:-}
[ $# -gt 0 ] && shift
case $verb in
    start) start "$@" ;;
    exec)
        alive || fail "no machine is running"
        exec 7<> "$RUN/control.out" 8<> "$RUN/control.in"
        run "$*"
        ;;
    stop) stop ;;
    *) sed -n '2,18p' "$0"; exit 2 ;;
esac
