#!/usr/bin/env bash
# Installs what the tests need beside Rust. As root it asks apt for what is missing; otherwise, or where
# apt cannot, it names what is missing and what will be skipped for it. It never fails for that: each
# test looks for its tools by itself and skips loudly.
#
#   interop/install-deps.sh [--check|--long]      --check only tells; --long also installs what only make test-long needs
#
# CARGO_TARGET_DIR (default: target) holds what is not installed system-wide: python packages and the
# vectors that are fetched.
set -uo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
# shellcheck source=interop/cache.sh
. interop/cache.sh
check_only=${1:-}

# Pinned, so that a run of today and one of next year ask the same oracle.
scapy=2.8.0
cryptography=50.0.2

# command or file|package|what needs it
needs=(
    "c++|g++|the fuzz targets (libFuzzer)"
    "cc|gcc|the tests of the preloaded library"
    "python3|python3|every oracle"
    "tshark|tshark|the tshark oracle"
    "qemu-system-x86_64|qemu-system-x86|the kernel oracle"
    "busybox|busybox-static|the kernel oracle"
    "cpio|cpio|the kernel oracle"
    "depmod|kmod|the kernel oracle"
    "ip|iproute2|the kernel oracle, tests that make namespaces"
    "ping|iputils-ping|the kernel oracle"
    "nft|nftables|tests with a NAT, tests that flush the packet filter"
    "iptables-nft|iptables|a test with rules of iptables"
    "conntrack|conntrack|a test that flushes the table of flows"
    "make|make|tests on emulated processors"
    "xz|xz-utils|tests on emulated processors"
    "xorriso|xorriso|tests on emulated processors"
    "/usr/share/bochs/BIOS-bochs-latest|bochsbios|tests on emulated processors"
    "/usr/share/vgabios/vgabios.bin|vgabios|tests on emulated processors"
    "/usr/lib/ISOLINUX/isolinux.bin|isolinux|tests on emulated processors"
    "/usr/lib/syslinux/modules/bios/ldlinux.c32|syslinux-common|tests on emulated processors"
    "systemd-analyze|systemd|the tests of the systemd unit"
    "setpriv|util-linux|a test of a gateway with few capabilities"
    "valgrind|valgrind|the search for branches on secrets"
    "openssl|openssl|the tests of the OpenSSL provider"
    "/usr/include/openssl/evp.h|libssl-dev|tests that lead the OpenSSL provider and OpenSSL's own through the same calls"
    "nginx|nginx-light|tests with nginx on the OpenSSL provider"
    "curl|curl|tests with nginx on the OpenSSL provider"
    "pkg-config|pkg-config|tests with crypto devices of DPDK"
    "/usr/include/dpdk/rte_cryptodev.h|libdpdk-dev|tests with crypto devices of DPDK"
    "dpkg-source|dpkg-dev|OpenSSL's own tests with the OpenSSL provider"
    "prove|perl|OpenSSL's own tests with the OpenSSL provider"
    "dpdk-test-crypto-perf|dpdk-dev|the bench beside crypto devices of DPDK"
    "ab|apache2-utils|a test of the TLS bench with Apache Bench"
    "haproxy|haproxy|tests with HAProxy on the OpenSSL provider"
    "/usr/lib/frr/zebra|frr|tests of routes that FRR learns through a tunnel"
    "llvm-mca-19|llvm-19|what kernels cost on processors that are not at hand"
)
# It and what it needs take more than a minute to install.
[ "$check_only" != --long ] || needs+=("chromium|chromium|the look at the page of the bench's report")

missing=()
collect_missing() {
    missing=()
    local row command package why
    for row in "${needs[@]}"; do
        IFS='|' read -r command package why <<< "$row"
        command -v "$command" > /dev/null || [ -x "/sbin/$command" ] || [ -x "/usr/sbin/$command" ] ||
            { [ "${command:0:1}" = / ] && [ -e "$command" ]; } ||
            missing+=("$package")
    done
    # A Debian python3 has venv in a package of its own.
    if command -v python3 > /dev/null && ! python3 -c 'import ensurepip, venv' 2> /dev/null; then
        missing+=(python3-venv)
    fi
}

apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}

# What may be had by one of several names, as distributions have it; apt is asked which it knows.
known_as() {
    local name
    for name in "$@"; do
        apt-cache show "$name" > /dev/null 2>&1 && echo "$name" && return
    done
}

# Everything in one call of apt: it reads its lists, and runs triggers, once.
install_packages() {
    local more
    collect_missing
    more=$(./interop/install-strongswan.sh --missing)
    # shellcheck disable=SC2206 # Words are what is wanted.
    missing+=($more)
    has_ipsec_mb || missing+=(libipsec-mb)
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
        [ ${#missing[@]} -eq 0 ] ||
            echo "install-deps: not root on a Debian, so these are not installed: ${missing[*]}"
        return
    fi
    # It is unpacked, not installed; what it needs is installed.
    more=$(./interop/install-libreswan.sh --download)
    # shellcheck disable=SC2206 # Words are what is wanted.
    missing+=($more)
    [ ${#missing[@]} -eq 0 ] || apt_get update > /dev/null || echo "install-deps: apt-get update failed"
    local package wanted=()
    for package in "${missing[@]}"; do
        case $package in
            # A python3 that was just missing brings its venv along.
            python3) wanted+=(python3 python3-venv) ;;
            llvm-19) wanted+=($(known_as llvm-19)) ;;
            libipsec-mb) wanted+=($(known_as libipsec-mb1 libipsec-mb2)) ;;
            *) wanted+=("$package") ;;
        esac
    done
    if [ ${#wanted[@]} -gt 0 ]; then
        echo "install-deps: installing ${wanted[*]}"
        # tshark asks whether others than root may capture; nothing here needs that.
        command -v debconf-set-selections > /dev/null &&
            echo "wireshark-common wireshark-common/install-setuid boolean false" | debconf-set-selections
        ./interop/install-strongswan.sh --around apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 \
            install -y --no-install-recommends "${wanted[@]}" > /dev/null ||
            echo "install-deps: apt-get install failed"
        # Nobody asked for routing daemons after the next start of this machine.
        case " ${wanted[*]} " in
            *" frr "*) systemctl disable --quiet frr.service > /dev/null 2>&1 || true ;;
        esac
    fi
    ./interop/install-libreswan.sh --unpack > /dev/null
}

has_ipsec_mb() {
    ldconfig -p 2> /dev/null | grep -q libIPSec_MB
}

# From the cache if it has the wheels, else from the index into the cache. pip that is new enough for the machine's
# python comes with it.
install_scapy() {
    local home=$target/tools/python wheels=$cache/wheels stamp
    stamp=$home/.scapy-$scapy-cryptography-$cryptography
    [ -e "$stamp" ] && return
    command -v python3 > /dev/null || return
    rm -rf "$home"
    local from=("$home/bin/pip" install -q --disable-pip-version-check "scapy==$scapy" "cryptography==$cryptography")
    if python3 -m venv "$home" 2> /dev/null &&
        { "${from[@]}" --no-index --find-links "$wheels" > /dev/null 2>&1 ||
            { "$home/bin/pip" download -q --disable-pip-version-check --dest "$wheels" "scapy==$scapy" \
                "cryptography==$cryptography" && "${from[@]}" --no-index --find-links "$wheels"; }; }; then
        touch "$stamp"
    else
        rm -rf "$home"
        echo "install-deps: could not install scapy $scapy with pip; the machine's own is used if it has one"
        if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null &&
            ! python3 -c 'import scapy.layers.ipsec' 2> /dev/null; then
            apt_get install -y --no-install-recommends python3-scapy > /dev/null || true
        fi
    fi
}

tell() {
    collect_missing
    local row command package why
    for row in "${needs[@]}"; do
        IFS='|' read -r command package why <<< "$row"
        printf '%s\n' "${missing[@]}" | grep -qx -- "$package" &&
            echo "install-deps: MISSING $package: skipped will be $why"
    done
    has_ipsec_mb ||
        echo "install-deps: MISSING libipsec-mb1: skipped will be the comparison with intel-ipsec-mb"
    ./interop/install-strongswan.sh --check
    ./interop/install-libreswan.sh --check
    local python=$target/tools/python/bin/python3
    [ -x "$python" ] || python=python3
    "$python" -c 'import scapy.layers.ipsec, cryptography' 2> /dev/null ||
        echo "install-deps: MISSING scapy and cryptography for python3: skipped will be the scapy oracle"
}

if [ "$check_only" != --check ]; then
    mkdir -p "$target/tools"
    install_packages
    install_scapy
    if [ -x interop/fetch-vectors.sh ]; then
        # It wants a python3 with pip, which the one above has.
        PATH=$(realpath "$target")/tools/python/bin:$PATH ./interop/fetch-vectors.sh || echo "install-deps: the test vectors could not be fetched"
    fi
fi
tell
exit 0
