#!/usr/bin/env bash
# Looks for branches and addresses that depend on secrets, in the optimised crypto crate, with Valgrind.
#
#   interop/constant-time/run.sh [SUITE...]
#
# Ends with 0, 1 where one was found (the log tells where), or 77 where Valgrind is missing. Valgrind knows
# no AVX-512, VAES or SHA instructions, so kernels made of those are skipped, and told.
set -uo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
log=$target/constant-time.log

if ! command -v valgrind > /dev/null; then
    echo "SKIPPED: constant time: valgrind is not installed (interop/install-deps.sh installs it as root)"
    exit 77
fi
nice cargo build --quiet --release --locked --package convoy-crypto --features secret-marks --example secret_marks || exit 1
valgrind --quiet --leak-check=no --read-inline-info=yes --num-callers=40 --error-limit=no \
    --log-file="$log" "$target/release/examples/secret_marks" "$@"
status=$?
[ "$status" -eq 0 ] || echo "the log is $log"
exit "$status"
