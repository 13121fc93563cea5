#!/usr/bin/env bash
# DPDK's drivers for intel-ipsec-mb (crypto_aesni_mb, crypto_aesni_gcm) over Intel's library and over Convoy's: DPDK's own tests of
# both drivers, counted, and the throughput of AES-128-GCM, interleaved, as medians.
#
#   interop/ipsec-mb/dpdk.sh [ROUNDS]
#
# It fails where a test fails over Convoy that passes over Intel's, unless what it asks for is not in the set
# (dpdk-outside.txt). dpdk-test may end of itself where it is refused something; what comes then is not run, which is told. No figure fails. Ends with 0, 1, or 77 where DPDK's test programs are not installed. No root, no
# devices, no huge pages.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
rounds=${1:-5}

skip() {
    echo "SKIPPED: DPDK over libIPSec_MB: $1"
    exit 77
}

for program in dpdk-test dpdk-test-crypto-perf; do
    command -v $program > /dev/null || skip "$program is not installed (Debian: dpdk)"
done
driver=$(ldconfig -p | sed -n 's/.* => \(.*librte_crypto_ipsec_mb\.so.*\)/\1/p' | head -n 1)
[ -n "$driver" ] || skip "DPDK has no driver for it here (Debian: librte-crypto-ipsec-mb23)"
major=$(objdump -p "$driver" | sed -n 's/.*NEEDED *libIPSec_MB\.so\.//p')
case $major in
    1) package=convoy-ipsec-mb-1 ;;
    2) package=convoy-ipsec-mb ;;
    *) skip "$driver wants libIPSec_MB.so.$major, of which there is no stand-in" ;;
esac
nice cargo build --quiet --release --locked --package $package || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$target/release/lib${package//-/_}.so" "$work/libIPSec_MB.so.$major"
logs=$target/ipsec-mb/dpdk
rm -rf "$logs"
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# dpdk LIBRARIES PROGRAM DEVICE ARGUMENTS...: without huge pages and devices of the machine.
dpdk() {
    local libraries=$1 program=$2 device=$3
    shift 3
    LD_LIBRARY_PATH=$libraries timeout 300 "$program" --no-huge -m 1024 --no-pci --no-telemetry \
        --file-prefix "convoy$$" -l 0,1 --vdev "$device" "$@"
}

# The names of tests with an outcome (succeeded or failed), numbered where a name comes twice.
outcomes() {
    sed -nE "s/^ *\+ (TestCase \[ *[0-9]+\] : .*) $1$/\1/p" "$2" | sed -E 's/^TestCase \[ *[0-9]+\] : //' |
        awk '{ print $0 (seen[$0]++ ? " (" seen[$0] ")" : "") }' | sort
}

# Whether the last suite that began is of what is not in the set; $suite is its name.
ends_outside() {
    suite=$(sed -nE 's/^ *\+ Test Suite : (.*)$/\1/p' "$1" | tail -n 1)
    echo "$suite" | grep -qiE -f interop/ipsec-mb/dpdk-outside.txt
}

# Tests of a driver, over both libraries.
autotest() {
    local device=$1 who libraries lost status
    for who in intel convoy; do
        libraries=
        [ $who = intel ] || libraries=$work
        printf 'cryptodev_%s_autotest\nquit\n' "${device#crypto_}" |
            dpdk "$libraries" dpdk-test "$device" > "$logs/$device-$who.log" 2>&1
        status=$?
        outcomes succeeded "$logs/$device-$who.log" > "$work/good-$who"
        outcomes failed "$logs/$device-$who.log" > "$work/bad-$who"
        echo "  $device over $who: $(wc -l < "$work/good-$who") passed, $(wc -l < "$work/bad-$who") failed"
        if [ $status -ne 0 ] && [ $who = convoy ] && ends_outside "$logs/$device-$who.log"; then
            echo "SKIPPED in part: dpdk-test cannot stand that an operation is refused, and ended ($status) in its suite $suite"
            skipped=$((skipped + 1))
        elif [ $status -ne 0 ]; then
            echo "FAILED: dpdk-test ended with $status over $who; $logs/$device-$who.log has what it printed"
            failed=$((failed + 1))
        fi
    done
    if [ ! -s "$work/good-intel" ]; then
        echo "FAILED: no test of $device passes over Intel's library; $logs/$device-intel.log has what it printed"
        failed=$((failed + 1))
        return
    fi
    comm -12 "$work/good-intel" "$work/bad-convoy" > "$work/lost"
    grep -viE -f interop/ipsec-mb/dpdk-outside.txt "$work/lost" > "$work/faults"
    lost=$(wc -l < "$work/faults")
    echo "  $device: of $(wc -l < "$work/lost") that pass over intel alone, $lost are of what is in the set"
    sed 's/^/FAILED: over convoy, not over intel: /' "$work/faults"
    echo "  $device: $(comm -23 "$work/good-intel" <(sort "$work/good-convoy" "$work/bad-convoy") | wc -l) that pass over intel were not run over convoy"
    passed=$((passed + $(wc -l < "$work/good-convoy")))
    failed=$((failed + lost))
}

# measure WHO DEVICE OPERATION BYTES: cycles to a buffer.
measure() {
    local libraries=
    [ "$1" = intel ] || libraries=$work
    dpdk "$libraries" dpdk-test-crypto-perf "$2" -- --ptest throughput --devtype "$2" --optype aead --aead-algo aes-gcm \
        --aead-op "$3" --aead-key-sz 16 --aead-iv-sz 12 --aead-aad-sz 16 --digest-sz 16 --buffer-sz "$4" --total-ops 3000000 \
        --burst-sz 32 --silent --csv-friendly 2> /dev/null | sed -n "s/^[0-9]*,$4,.*,//p"
}

median() {
    sort -n "$1" | awk '{ all[NR] = $1 } END { print NR ? all[int((NR + 1) / 2)] : "nothing" }'
}

throughput() {
    local device=$1 operation=$2 bytes=$3 who
    : > "$work/intel.cycles"
    : > "$work/convoy.cycles"
    for _ in $(seq "$rounds"); do
        for who in intel convoy; do
            measure $who "$device" "$operation" "$bytes" >> "$work/$who.cycles"
        done
    done
    awk -v intel="$(median "$work/intel.cycles")" -v convoy="$(median "$work/convoy.cycles")" -v what="$device AES-128-GCM $operation $bytes B" \
        'BEGIN { printf "  %-46s %7.1f cycles over intel, %7.1f over convoy, ratio %.2f\n", what, intel, convoy, (convoy > 0 ? intel / convoy : 0) }'
}

echo "DPDK's tests of its drivers, over libIPSec_MB.so.$major of Intel and of Convoy"
for device in crypto_aesni_mb crypto_aesni_gcm; do
    autotest $device
done
echo "throughput, medians of $rounds rounds in turn; above 1 Convoy is faster"
for device in crypto_aesni_mb crypto_aesni_gcm; do
    for bytes in 64 1420; do
        throughput $device encrypt $bytes
    done
    throughput $device decrypt 64
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
