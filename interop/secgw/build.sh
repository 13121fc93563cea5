#!/usr/bin/env bash
# DPDK's example ipsec-secgw, which no distribution ships built, from the source package of the DPDK that is installed here.
#
#   interop/secgw/build.sh [FOLDER]
#
# It prints the path of the program; convoy bench dpdk --secgw and convoy bench report --secgw take it. windows.patch changes
# two things, and nothing in the way of a packet: a device need not check checksums, so that devices of software will do, and
# with SECGW_WINDOWS=COUNT the program times so many windows of 1,024 packets, prints them and ends. FOLDER has a source tree of DPDK to
# use instead. The program stays in the cache. Ends with 0, 1, or 77 where it cannot be built.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=interop/cache.sh
. interop/cache.sh
# shellcheck source=interop/apt-sources.sh
. interop/apt-sources.sh

skip() {
    echo "SKIPPED: ipsec-secgw: $1" >&2
    exit 77
}

for tool in cc make patch pkg-config; do
    command -v $tool > /dev/null || skip "there is no $tool"
done
pkg-config --exists libdpdk || skip "there is no DPDK to build with (Debian and Ubuntu: apt install libdpdk-dev)"
version=$(pkg-config --modversion libdpdk)
sum=$(sha256sum interop/secgw/windows.patch | cut -c 1-12)
program=$cache/ipsec-secgw-$version-$sum
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# -gt 0 ] || [ ! -x "$program" ]; then
    patch=$PWD/interop/secgw/windows.patch
    if [ $# -gt 0 ]; then
        mkdir -p "$work/dpdk"
        cp -r "$1/examples" "$work/dpdk/"
    else
        read_lists dpdk || skip "apt has no lists of source packages"
        (cd "$work" && apt_with here apt-get -qq source --download-only dpdk >&2) ||
            skip "apt has no source package of DPDK $version"
        mkdir "$work/dpdk"
        tar -xf "$work"/dpdk_*.orig.tar.* -C "$work/dpdk" --strip-components 1 --wildcards '*/examples/*'
    fi
    patch --quiet -d "$work/dpdk" -p 1 < "$patch" >&2
    make --silent -C "$work/dpdk/examples/ipsec-secgw" shared >&2
    cp "$work/dpdk/examples/ipsec-secgw/build/ipsec-secgw-shared" "$program.new"
    mv "$program.new" "$program"
fi
echo "$program"
