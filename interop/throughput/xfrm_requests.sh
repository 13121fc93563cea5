#!/usr/bin/env bash
# Time of a daemon's request for SAs and policies, by how many there are.
#
#   interop/throughput/xfrm_requests.sh [CONVOY [XFRM_LOAD [TUNNELS…]]]
#
# A gateway of its own runs in a network namespace, with leak protection and its state in memory. For each count of
# tunnels (2 SAs and 3 policies each, as charon asks for them, one request at a time) a fresh one is loaded. "At the end"
# are the last of its tunnels, one in 20. With several counts, the requests at the end are compared with those of the first. Needs root. Ends with 0, 1, or 77 where it cannot run.
set -euo pipefail
cd "$(dirname "$0")/../.."
convoy=$(realpath "${1:-target/release/convoy}")
load=$(realpath "${2:-target/release/examples/xfrm_load}")
shift $(($# < 2 ? $# : 2))
counts=("${@:-100 1000 10000}")
# shellcheck disable=SC2206 # the default is a list
counts=(${counts[*]})

if ! unshare --net true 2> /dev/null; then
    echo "SKIPPED: XFRM requests: network namespaces need root" >&2
    exit 77
fi
folder=$(mktemp -d /dev/shm/convoy-xfrm.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/site.toml" << END
name = "load"
control_socket = "$folder/control.sock"
[plain]
interface = "convoy0"
[xfrm]
socket = "$folder/xfrm.sock"
state = "$folder/state"
END
# As one command, so that the gateway ends with it.
cat > "$folder/one.sh" << 'END'
set -e
convoy=$1 load=$2 folder=$3 tunnels=$4
ip link set lo up
# The recorded requests are those of a gateway with this address.
ip address add 198.51.100.1/32 dev lo
mkfifo "$folder/end"
"$convoy" run "$folder/site.toml" --until-stdin-ends < <(cat "$folder/end") > "$folder/ready" 2> "$folder/log" &
exec 9> "$folder/end"
for _ in $(seq 200); do grep -q ready "$folder/ready" && break; sleep 0.05; done
"$load" "$folder/xfrm.sock" "$tunnels" || { tail "$folder/log" >&2; exit 1; }
exec 9>&-
wait
END
first=
for tunnels in "${counts[@]}"; do
    rm -rf "$folder/end" "$folder/state"
    said=$(unshare --net bash "$folder/one.sh" "$convoy" "$load" "$folder" "$tunnels" | grep request)
    each=$(sed -E 's/.*at the end ([0-9]+) us a request.*/\1/' <<< "$said")
    first=${first:-$each}
    printf '%6d tunnels: %s (%s times that of the first)\n' "$tunnels" "$said" \
        "$(awk -v each="$each" -v first="$first" 'BEGIN { printf "%.2f", each / first }')"
done
