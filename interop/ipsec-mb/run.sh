#!/usr/bin/env bash
# Intel's unmodified test programs of intel-ipsec-mb over Convoy's libraries: imb-wycheproof, imb-kat, imb-xvalid and imb-perf,
# built from the newest source package that Debian has, and from that of the release here.
#
#   interop/ipsec-mb/run.sh [--smoke] [PROGRAM...]
#
# PROGRAM is wycheproof, kat, xvalid or perf. IPSEC_MB_SOURCE=FOLDER names a source tree to use instead. --smoke runs
# imb-wycheproof alone, of sources that are at hand, over the libraries of the debug build. suites.txt says which suites Convoy
# is held to; others run, too, and are told of where they pass. Ends with 0, 1 where a suite fails that should not, or 77 where
# nothing can be run. Sources stay in the cache.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# shellcheck source=interop/cache.sh
. interop/cache.sh
# shellcheck source=interop/apt-sources.sh
. interop/apt-sources.sh
# shellcheck source=interop/ipsec-mb/build.sh
. interop/ipsec-mb/build.sh
# shellcheck source=interop/ipsec-mb/judge.sh
. interop/ipsec-mb/judge.sh

smoke=no
programs=()
for argument in "$@"; do
    case $argument in
        --smoke) smoke=yes ;;
        wycheproof | kat | xvalid | perf) programs+=("$argument") ;;
        *)
            echo "no program $argument; there are wycheproof, kat, xvalid and perf" >&2
            exit 2
            ;;
    esac
done
if [ $smoke = yes ]; then
    programs=(wycheproof)
elif [ ${#programs[@]} -eq 0 ]; then
    programs=(wycheproof kat xvalid perf)
fi

skip() {
    echo "SKIPPED: Intel's programs of intel-ipsec-mb: $1"
    exit 77
}

[ "$(uname -m)" = x86_64 ] || skip "they are for x86-64"
command -v cc > /dev/null || skip "there is no compiler of C, cc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources=()
find_sources
[ ${#sources[@]} -gt 0 ] || skip "$why_none"

passed=0 failed=0 skipped=0
for source in "${sources[@]}"; do
    version=$(version_of "$source") || { echo "FAILED: $source has no lib/intel-ipsec-mb.h" && failed=$((failed + 1)) && continue; }
    major=${version%%.*}
    make_library "$major" || exit 1
    logs=$target/ipsec-mb/$version
    rm -rf "$logs"
    mkdir -p "$logs"
    echo "intel-ipsec-mb $version: its programs over libIPSec_MB.so.$major of Convoy"
    for program in "${programs[@]}"; do
        if build_program "$program" "$source" "$logs"; then
            run_suites "$program" "$major" "$logs"
        else
            echo "SKIPPED: imb-$program $version: $why"
            skipped=$((skipped + 1))
        fi
    done
done
echo "what each suite printed lies in $target/ipsec-mb"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 77
