# To be sourced. Runs suites of a program, and judges and counts what they print.

# The suites that a program has; what it is asked for them is in the arguments below.
suites_of() {
    case $1 in
        kat)
            # Version 1 does not tell.
            LD_LIBRARY_PATH=$libraries "$built" --help 2>&1 | sed -n 's/.*is one of \(.*\)\.$/\1/p' | tr -d ',' | tr ' ' '\n' |
                grep . || awk '$1 == "kat" { print $2 }' interop/ipsec-mb/suites.txt
            ;;
        xvalid)
            local kind
            for kind in cipher hash aead; do
                LD_LIBRARY_PATH=$libraries "$built" --$kind-algo none 2>&1 | sed -n 's/^Accepted arguments: //p' |
                    tr ' ' '\n' | tr '[:upper:]' '[:lower:]' | sed -n "s/./$kind:&/p"
            done
            ;;
        *) sed -n "s/^$1  *\([^ ]*\).*/\1/p" interop/ipsec-mb/suites.txt ;;
    esac
}

# is_held PROGRAM SUITE MAJOR: whether Convoy is held to a suite.
is_held() {
    awk -v program="$1" -v suite="$2" -v major="$3" '
        $1 == program && $2 == suite && (NF < 3 || $3 == major) { found = 1 }
        END { exit !found }' interop/ipsec-mb/suites.txt
}

# Runs one suite; its output is in the log.
run_suite() {
    local arguments=()
    case $1 in
        kat) arguments=(--test-type "$2") ;;
        # With a look for keys that are left in the manager, in registers and on the stack.
        xvalid) arguments=("--${2%%:*}-algo" "${2#*:}" --job-size 16:16:256 --safe-check) ;;
        perf) arguments=("--${2%%:*}-algo" "${2#*:}" --arch-best --quick --cipher-dir encrypt --job-size 64 -c --threads 1) ;;
    esac
    LD_LIBRARY_PATH=$libraries timeout 300 "$built" "${arguments[@]}" > "$3" 2>&1
}

# count PROGRAM STATUS LOG: how many cases ran, passed, failed and were skipped. Where a program counts none, its end is one.
count() {
    awk -v program="$1" -v status="$2" '
        program == "wycheproof" && /^Testing .*: PASSED \(run: / {
            gsub(/[(),]/, "")
            for (i = 1; i < NF; i++) {
                if ($i == "run:") passed += $(i + 1)
                if ($i == "skipped:") skipped += $(i + 1)
            }
        }
        program == "wycheproof" && /^Testing .*: (FAILED|PASSED$)/ { if (/FAILED/) failed++; else passed++ }
        program == "kat" && /\[ALGO\].* PASS$/ { passed++ }
        program == "kat" && /\[ALGO\].* FAIL$/ { failed++ }
        program == "kat" && /\[ALGO\].* NOT_EXECUTED$/ { skipped++ }
        # It ends well, too, where jobs came back unworked.
        program == "xvalid" && /^Failures in/ { failed++ }
        # The same where it gave up on the way.
        program == "kat" && /^Test completed: PASS/ { whole = 1 }
        END {
            if (program == "kat" && !whole) status = 1
            if (status != 0 && !failed) failed = 1
            if (status == 0 && !passed && !failed && !skipped) passed = 1
            print passed + failed + skipped, passed + 0, failed + 0, skipped + 0
        }' "$3"
}

# run_suites PROGRAM MAJOR LOGS: every suite of a program. Those Convoy is not held to are told of where they pass.
run_suites() {
    local program=$1 major=$2 logs=$3 suite log status ran good bad left outside=0
    local sum=(0 0 0 0)
    for suite in $(suites_of "$program"); do
        log=$logs/$program-${suite//:/-}.log
        run_suite "$program" "$suite" "$log"
        status=$?
        read -r ran good bad left < <(count "$program" $status "$log")
        if ! is_held "$program" "$suite" "$major"; then
            outside=$((outside + 1))
            [ "$bad" -gt 0 ] || [ "$good" -eq 0 ] ||
                echo "  imb-$program $suite passes ($good cases) and is not in interop/ipsec-mb/suites.txt"
            continue
        fi
        printf '  imb-%-11s %-35s %5d run, %5d passed, %3d failed, %3d skipped\n' "$program" "$suite" "$ran" "$good" "$bad" "$left"
        sum=($((sum[0] + ran)) $((sum[1] + good)) $((sum[2] + bad)) $((sum[3] + left)))
        [ "$bad" -eq 0 ] || echo "FAILED: imb-$program $suite; what it printed is $log"
    done
    echo "  imb-$program: ${sum[0]} run, ${sum[1]} passed, ${sum[2]} failed, ${sum[3]} skipped by it; $outside suites outside the set"
    if [ "${sum[0]}" -eq 0 ] && [ $outside -eq 0 ]; then
        echo "FAILED: imb-$program has no suites"
        sum[2]=1
    fi
    passed=$((passed + sum[1]))
    failed=$((failed + sum[2]))
    skipped=$((skipped + sum[3]))
}
