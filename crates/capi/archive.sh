#!/bin/sh
# Makes the archive that is installed out of the one that cargo makes: a single object whose only global names are the
# library's functions, convoy_*. So it can be linked beside other libraries that have Rust's standard library in them,
# and a shared library made of it exports nothing else.
#
#   crates/capi/archive.sh FROM TO
#
# READELF, LD, OBJCOPY and AR name other tools than GNU's.
set -eu
from=$1 to=$2
readelf=${READELF:-readelf} ld=${LD:-ld} objcopy=${OBJCOPY:-objcopy} ar=${AR:-ar}

for tool in "$readelf" "$ld" "$objcopy" "$ar"; do
    # What is asked for may have arguments of its own.
    command -v "${tool%% *}" > /dev/null || {
        echo "the C library's archive needs ${tool%% *}, which is not installed: install binutils, or name other tools" \
            "by READELF, LD, OBJCOPY and AR" >&2
        exit 1
    }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Not nm: where a plugin for another LLVM is installed, it sees no names in what Rust makes.
$readelf -sW "$from" 2> /dev/null | awk '$5 == "GLOBAL" && $7 != "UND" && $8 ~ /^convoy_/ { print $8 }' |
    sort -u > "$work/names"
[ -s "$work/names" ] || {
    echo "$readelf finds no function convoy_* in $from" >&2
    exit 1
}
# What the functions need, and no more of the archive. Groups of sections are named by symbols, and a linker keeps one
# group of a name, be it another library's: so they are dissolved before their names become local.
sed 's/^/--undefined=/' "$work/names" > "$work/wanted"
$ld -r --gc-sections --force-group-allocation "@$work/wanted" -o "$work/convoy_crypto.o" "$from"
# Bitcode is for Rust's own optimisation of whole programs, and is most of the size.
$objcopy --keep-global-symbols="$work/names" --remove-section=.llvmbc --remove-section=.llvmcmd "$work/convoy_crypto.o"
# In one step, so that an archive that is there is whole.
$ar rcsD "$work/archive.a" "$work/convoy_crypto.o"
install -m 0644 "$work/archive.a" "$to"
