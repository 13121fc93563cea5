#!/usr/bin/env bash
# Unpacks Libreswan from the distribution, as a peer for tests. It is not installed: packages of IKE daemons
# exclude one another. As root it asks apt for the libraries it needs; where there is no apt, or something is
# still missing, it says so and ends with 1.
#
#   interop/install-libreswan.sh [--check]      --check only tells
#   interop/install-libreswan.sh --download     fetches it and prints the packages that it needs and that are not there
#   interop/install-libreswan.sh --unpack       unpacks what was fetched
set -uo pipefail
cd "$(dirname "$0")/.."
home=${CARGO_TARGET_DIR:-target}/tools/libreswan
pluto=$home/usr/libexec/ipsec/pluto
# shellcheck source=interop/cache.sh
. interop/cache.sh
packages=$cache/libreswan

is_complete() {
    [ -x "$pluto" ] && command -v certutil > /dev/null && ! ldd "$pluto" | grep -q 'not found'
}

apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}

# Into the cache, if it is not there. apt's own user cannot write there, so root downloads.
download() {
    ls "$packages"/*.deb > /dev/null 2>&1 && return
    mkdir -p "$packages"
    (cd "$packages" && apt_get -o APT::Sandbox::User=root download libreswan > /dev/null 2>&1) ||
        { apt_get update > /dev/null && cd "$packages" && apt_get -o APT::Sandbox::User=root download libreswan > /dev/null; }
}

# What it depends on, less what it is not to be: alternatives, and programs that tests do without.
libraries() {
    local package
    for package in "$packages"/*.deb; do
        [ -e "$package" ] || continue
        dpkg-deb -f "$package" Depends | tr ',' '\n' | sed 's/[(|].*//; s/ //g' | grep -E '^(lib|dns-root-data)'
    done
}

unpack() {
    local package
    rm -rf "$home"
    mkdir -p "$home"
    for package in "$packages"/*.deb; do
        [ -e "$package" ] && dpkg -x "$package" "$home"
    done
}

install() {
    (download) || echo "install-libreswan: it cannot be downloaded"
    libraries | DEBIAN_FRONTEND=noninteractive xargs apt-get -q -o DPkg::Lock::Timeout=600 \
        install -y --no-install-recommends > /dev/null || echo "install-libreswan: apt-get install failed"
    unpack
}

if ! is_complete && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    case ${1:-} in
        --check) ;;
        --download)
            (download) > /dev/null || exit 1
            for library in $(libraries); do
                dpkg-query -W -f '${Status}' "$library" 2> /dev/null | grep -q 'ok installed' || echo "$library"
            done
            exit 0
            ;;
        --unpack) unpack ;;
        *) install ;;
    esac
fi
is_complete && exit 0
echo "install-libreswan: MISSING libreswan: skipped will be all tests with pluto"
exit 1
