#!/usr/bin/env bash
# OpenSSL's own tests with Convoy's provider preferred, beside the same tests without it. They are built from the
# distribution's source package of the OpenSSL that is installed, and of the newest that Debian has.
#
#   interop/openssl-tests/run.sh [-r RELEASE]... [RECIPE...]
#
# RELEASE is here, newest, or a version such as 3.5; RECIPE is one of OpenSSL's, such as test_evp_extra, or a pattern.
# PROVIDER names the provider; without it, the release build is made. Ends with 0, 1 where a test fails that should not,
# or 77 where the tests are not to be had. Builds stay in the cache, 1 GB each.
set -uo pipefail
cd "$(dirname "$0")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# shellcheck source=interop/cache.sh
. interop/cache.sh
# shellcheck source=interop/apt-sources.sh
. interop/apt-sources.sh
# shellcheck source=interop/openssl-tests/build.sh
. interop/openssl-tests/build.sh

skip() {
    echo "SKIPPED: OpenSSL's own tests: $1"
    exit 77
}

releases=()
while getopts r: option; do
    case $option in
        r) releases+=("$OPTARG") ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ ${#releases[@]} -gt 0 ] || releases=(here newest)

# command|package
needs=("cc|gcc" "make|make" "prove|perl" "python3|python3" "dpkg-source|dpkg-dev")
packages_missing() {
    local row
    for row in "${needs[@]}"; do
        command -v "${row%|*}" > /dev/null || echo "${row#*|}"
    done
}

command -v apt-get > /dev/null || skip "apt-get is not here, which fetches OpenSSL's source"
missing=$(packages_missing)
if [ -n "$missing" ] && [ "$(id -u)" -eq 0 ]; then
    # shellcheck disable=SC2086 # Words are what is wanted.
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends $missing > /dev/null
    missing=$(packages_missing)
fi
# shellcheck disable=SC2086 # On one line.
[ -z "$missing" ] || skip "these packages are not installed: $(echo $missing)"

if [ -z "${PROVIDER:-}" ]; then
    nice cargo build --quiet --release --locked --package convoy-openssl || exit 1
    PROVIDER=$target/release/libconvoy_openssl.so
fi
[ -e "$PROVIDER" ] || { echo "there is no provider $PROVIDER; PROVIDER names it" >&2; exit 1; }

PYTHONDONTWRITEBYTECODE=1 python3 interop/openssl-tests/test_compare.py || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read_lists openssl || skip "the lists of source packages cannot be read; apt-get update may help"

logs=$target/openssl-tests
rm -rf "$logs"
status=0 done_before=" "
: > "$work/tallies"
for release in "${releases[@]}"; do
    prepare "$release"
    case $? in
        0) ;;
        77) continue ;;
        *)
            echo "FAILED: OpenSSL $version does not build"
            status=1
            echo "0 passed, 1 failed, 0 skipped" >> "$work/tallies"
            continue
            ;;
    esac
    case $done_before in *" $version "*) continue ;; esac
    done_before="$done_before$version "
    mkdir -p "$logs/$version"
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 python3 interop/openssl-tests/compare.py --provider "$PROVIDER" \
        --source "$builds/$version/source" --build "$builds/$version/build" --version "$version" --logs "$logs/$version" \
        -- "$@" | tee "$work/output"
    [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
    tail -n 1 "$work/output" >> "$work/tallies"
done
[ "$done_before" != " " ] || [ $status -ne 0 ] || exit 77
echo "what each recipe printed lies in $logs"
awk '{ passed += $1; failed += $3; skipped += $5 } END { print passed + 0 " passed, " failed + 0 " failed, " skipped + 0 " skipped" }' \
    "$work/tallies"
exit $status
