#!/usr/bin/env bash
# Installs strongSwan from the distribution, as peers for tests and for `make demo-ike`. As root it asks apt,
# and sees to it that no service is started or enabled by that: the daemons here run in namespaces of their
# own. Otherwise, or where there is no apt, it names what is missing and ends with 1.
#
#   interop/install-strongswan.sh [--check]      --check only tells
#   interop/install-strongswan.sh --missing      prints the packages that are missing
#   interop/install-strongswan.sh --around COMMAND…    runs a command that installs them, perhaps among others
set -uo pipefail

# command or file|package
needs=(
    "charon-systemd|charon-systemd"
    "swanctl|strongswan-swanctl"
    "pki|strongswan-pki"
    "libstrongswan-kernel-libipsec.so|libcharon-extra-plugins"
    "libstrongswan-curve25519.so|libstrongswan-extra-plugins"
    "libstrongswan-openssl.so|libstrongswan-standard-plugins"
)
plugins=(/usr/lib/ipsec/plugins /usr/lib/strongswan/plugins /usr/lib64/strongswan/plugins
    /usr/libexec/strongswan/plugins)
policy=/usr/sbin/policy-rc.d

missing=()
collect_missing() {
    missing=()
    local row file package place found
    for row in "${needs[@]}"; do
        IFS='|' read -r file package <<< "$row"
        found=
        for place in "${plugins[@]}" /usr/sbin /sbin; do [ -e "$place/$file" ] && found=1; done
        [ -n "$found" ] || command -v "$file" > /dev/null || missing+=("$package")
    done
}

apt_get() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}

# Packages ask this file whether they may start what they bring (Debian policy 9.3.3); 101 means no.
forbid_starting() {
    [ -e "$policy" ] && return
    # Only while this script runs.
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod 755 "$policy"
}

# Runs what installs the missing packages, so that nothing begins to run by it.
around() {
    forbid_starting
    "$@"
    local status=$?
    # Nobody asked for a VPN after the next start of this machine.
    if command -v systemctl > /dev/null && ! [ "$had_charon" ]; then
        systemctl disable --quiet strongswan.service 2> /dev/null
    fi
    return $status
}

install() {
    echo "install-strongswan: installing ${missing[*]}"
    apt_get update > /dev/null || echo "install-strongswan: apt-get update failed"
    around apt_get install -y --no-install-recommends "${missing[@]}" > /dev/null ||
        echo "install-strongswan: apt-get install failed"
}

collect_missing
had_charon=$(command -v charon-systemd || true)
case ${1:-} in
    --missing)
        echo "${missing[*]}"
        exit 0
        ;;
    --around)
        shift
        export DEBIAN_FRONTEND=noninteractive
        around "$@"
        exit
        ;;
esac
if [ ${#missing[@]} -gt 0 ] && [ "${1:-}" != --check ] && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    install
    collect_missing
fi
[ ${#missing[@]} -eq 0 ] && exit 0
echo "install-strongswan: MISSING ${missing[*]} (by their names in Debian): skipped will be all tests with strongSwan"
exit 1
