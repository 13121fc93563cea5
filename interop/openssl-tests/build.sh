# To be sourced. Fetches a source package of OpenSSL and builds it with its tests, in $cache/openssl-tests/VERSION.

builds=$cache/openssl-tests
# Like Debian's own, less what needs further libraries (compression) or a second build (the FIPS module).
options="shared no-idea no-mdc2 no-rc5 enable-unit-test enable-rfc3779 enable-cms no-rdrand"

# The versions to try for a release, best first: a mirror may lack what its list names.
versions_of() {
    local installed series
    case $1 in
        newest) cat "$work/all.versions" ;;
        here)
            installed=$(dpkg-query -W -f '${Version}' openssl 2> /dev/null || head -n 1 "$work/here.versions")
            series=$(echo "$installed" | grep -oE '^[0-9]+\.[0-9]+')
            { grep -Fx -- "$installed" "$work/here.versions"; grep -- "^$series\." "$work/here.versions"; } | awk '!seen[$0]++'
            ;;
        *) grep -- "^${1//./\\.}" "$work/all.versions" ;;
    esac
}

# Builds a release unless the cache has it; its version is in $version then. Clones on one machine share the cache.
prepare() {
    mkdir -p "$builds"
    exec 9> "$builds/lock"
    flock 9
    prepare_alone "$1"
    local status=$?
    exec 9>&-
    return $status
}

prepare_alone() {
    local why="there is no OpenSSL $1"
    for version in $(versions_of "$1"); do
        [ ! -e "$builds/$version/complete" ] || return 0
        if fetch; then
            build
            return
        fi
        echo "OpenSSL $version cannot be fetched whole; an older one is tried"
        why="no source package of OpenSSL $1 can be fetched"
    done
    echo "SKIPPED: OpenSSL's own tests, release $1: $why"
    return 77
}

fetch() {
    rm -rf "${builds:?}/$version"
    mkdir -p "$builds/$version"
    # In quotes of its own: apt reads a version with a tilde as it is.
    (cd "$builds/$version" && apt_with all apt-get -qq source "openssl=$version" > fetch.log 2>&1 && mv openssl-*/ source) || {
        rm -rf "${builds:?}/$version"
        return 1
    }
}

build() {
    local folder=$builds/$version target
    target=debian-$(dpkg-architecture -qDEB_HOST_ARCH)
    [ "$target" != debian-amd64 ] || options="$options enable-ec_nistp_64_gcc_128"
    echo "OpenSSL $version is built with its tests in $folder; this takes some minutes"
    rm -rf "$folder/build"
    mkdir "$folder/build"
    # Debian's patch cannot add binary files, which some tests need.
    [ ! -e "$folder/source/debian/binary.tar" ] || tar -xf "$folder/source/debian/binary.tar" -C "$folder/source"
    # shellcheck disable=SC2086 # Words are what is wanted.
    (cd "$folder/build" && ../source/Configure $options "$target" > configure.log 2>&1) || {
        tail -n 20 "$folder/build/configure.log"
        return 1
    }
    nice make -C "$folder/build" -j "$(nproc)" build_sw 2>&1 | tee "$folder/build/make.log" | progress || {
        grep -m 5 -i 'error' "$folder/build/make.log"
        echo "it does not build; the log is $folder/build/make.log"
        return 1
    }
    touch "$folder/complete"
    forget_older
}

# A line for each few hundred objects.
progress() {
    awk '{ if (NR % 500 == 0) { print "    " NR " lines of make so far"; fflush() } }'
}

# Of each series one build is kept.
forget_older() {
    local series other
    series=$(echo "$version" | grep -oE '^[0-9]+\.[0-9]+')
    for other in "$builds/$series".*; do
        [ "$other" = "$builds/$version" ] || rm -rf "${other:?}"
    done
}
