#!/bin/sh
# Prints the file for pkg-config of a library that is installed below PREFIX, with its libraries in LIBDIR. Where LIBDIR is
# below PREFIX, the whole tree may be moved: pkg-config --define-prefix finds it then.
#
#   crates/capi/pkg-config.sh PREFIX LIBDIR VERSION
set -eu
prefix=$(realpath -ms "$1") libdir=$(realpath -ms "$2") version=$3
includedir='${prefix}/include'
below=${libdir#"${prefix%/}"/}
case $below in
    # Elsewhere: it stays where it is.
    /*) ;;
    # pkg-config takes the folder above `lib/pkgconfig` for the prefix.
    [!/]*/*)
        libdir='${pcfiledir}/..'
        includedir='${pcfiledir}/../'$(echo "$below" | sed 's|[^/]\{1,\}|..|g')/include
        ;;
    *) libdir='${prefix}/'$below ;;
esac
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@INCLUDEDIR@|$includedir|" -e "s|@VERSION@|$version|" \
    "$(dirname "$0")/convoy_crypto.pc.in"
