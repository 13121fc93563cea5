#!/usr/bin/env bash
# Records what a real Linux kernel with ESP answers to `ip xfrm`: the commands of
# crates/control/tests/it/xfrm_server/recorded/commands.txt, run one after the other in an emulated machine. The
# test beside them holds Convoy to it.
#
#   interop/record-xfrm.sh            writes linux.txt beside the commands
#   interop/record-xfrm.sh --check    compares instead
#
# Needs what kernel-esp-peer.sh needs, and ends with 77 where that is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=crates/control/tests/it/xfrm_server/recorded
export NS=convoy-record-$$ RUN=${CARGO_TARGET_DIR:-$PWD/target}/record-$$ TIMEOUT=300

work=$(mktemp -d)
trap 'interop/kernel-esp-peer.sh stop; rm -rf "$work"' EXIT

# Each command with its output behind two blanks, its errors behind "! ", and its status.
script() {
    cat << 'FUNCTIONS'
told() {
    printf '$ %s\n' "$1"
    shift
    /bin/ip xfrm "$@" > /tmp/out 2> /tmp/errors
    status=$?
    sed 's/^/  /' /tmp/out
    sed 's/^/! /' /tmp/errors
    printf '= %s\n' "$status"
}
FUNCTIONS
    local line word
    while IFS= read -r line; do
        case $line in
            '' | '#'*) continue ;;
        esac
        printf "told '%s'" "$line"
        # shellcheck disable=SC2086 # Words are what is wanted; none is a pattern.
        for word in $line; do
            [ "$word" = '""' ] && word=
            printf " '%s'" "$word"
        done
        printf '\n'
    done < "$folder/commands.txt"
}

script > "$work/script.sh"
cat > "$work/setup.sh" << 'SETUP'
ip link set eth0 up
ip addr add 192.0.2.1/24 dev eth0
SETUP
# The script goes into the machine as a file; a command line would be too long.
{ cat "$work/setup.sh"; printf "cat > /tmp/script.sh << 'SCRIPT'\n"; cat "$work/script.sh"; echo SCRIPT; } > "$work/whole.sh"
interop/kernel-esp-peer.sh start -s "$work/whole.sh"
{
    echo "# What a kernel answers to the commands beside this file. Made by interop/record-xfrm.sh, with"
    interop/kernel-esp-peer.sh exec 'echo "# Linux $(uname -r)"; /bin/ip -V | sed "s/.*\(iproute2-[^,]*\).*/# \1/"'
    interop/kernel-esp-peer.sh exec '. /tmp/script.sh'
} > "$work/linux.txt"
if [ "${1:-}" = --check ]; then
    diff -u "$folder/linux.txt" "$work/linux.txt"
else
    cp "$work/linux.txt" "$folder/linux.txt"
fi
