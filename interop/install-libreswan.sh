#!/usr/bin/env bash
# Unpacks Libreswan from the distribution, as a peer for tests. It is not installed: packages of IKE daemons
# exclude one another. As root it asks apt for the libraries it needs; where there is no apt, or something is
# still missing, it says so and ends with 1.
#
#   interop/install-libreswan.sh [--check]      --check only tells
set -uo pipefail
cd "$(dirname "$0")/.."
home=${CARGO_TARGET_DIR:-target}/tools/libreswan
pluto=$home/usr/libexec/ipsec/pluto

is_complete() {
    [ -x "$pluto" ] && command -v certutil > /dev/null && ! ldd "$pluto" | grep -q 'not found'
}

apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}

install() {
    local folder
    folder=$(mktemp -d) || return
    # apt's own user has to reach it.
    chmod 755 "$folder"
    (cd "$folder" && apt_get -o APT::Sandbox::User=root download libreswan > /dev/null) || apt_get update > /dev/null
    (cd "$folder" && { ls ./*.deb > /dev/null 2>&1 || apt_get -o APT::Sandbox::User=root download libreswan > /dev/null; })
    rm -rf "$home"
    mkdir -p "$home"
    for package in "$folder"/*.deb; do
        [ -e "$package" ] || continue
        dpkg -x "$package" "$home"
        # What it depends on, less what it is not to be: alternatives, and programs that tests do without.
        dpkg-deb -f "$package" Depends | tr ',' '\n' | sed 's/[(|].*//; s/ //g' |
            grep -E '^(lib|dns-root-data)' | DEBIAN_FRONTEND=noninteractive xargs apt-get -q \
            -o DPkg::Lock::Timeout=600 install -y --no-install-recommends > /dev/null || echo "install-libreswan: apt-get install failed"
    done
    rm -rf "$folder"
}

if ! is_complete && [ "${1:-}" != --check ] && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    install
fi
is_complete && exit 0
echo "install-libreswan: MISSING libreswan: skipped will be all tests with pluto"
exit 1
