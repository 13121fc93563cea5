# To be sourced. Finds sources of intel-ipsec-mb, and builds its programs and Convoy's libraries.

trees=$cache/ipsec-mb

# Sets sources, or says in why_none why there are none.
find_sources() {
    if [ -n "${IPSEC_MB_SOURCE:-}" ]; then
        sources=("$(realpath "$IPSEC_MB_SOURCE")")
        return
    fi
    local release version
    if [ "$smoke" = no ]; then
        why_none="apt-get is not here, which fetches their source; IPSEC_MB_SOURCE=FOLDER names a source tree"
        command -v apt-get > /dev/null && command -v dpkg-source > /dev/null || return
        why_none="the lists of source packages cannot be read; apt-get update may help"
        read_lists intel-ipsec-mb || return
        why_none="no source package of intel-ipsec-mb can be fetched; IPSEC_MB_SOURCE=FOLDER names a source tree"
        for release in all here; do
            # A mirror may lack what its list names.
            while read -r version; do
                ! fetch_tree "$version" || break
                echo "intel-ipsec-mb $version cannot be fetched whole; an older one is tried"
            done < "$work/$release.versions"
        done
    else
        why_none="no source tree is at hand; interop/ipsec-mb/run.sh fetches one, or IPSEC_MB_SOURCE=FOLDER names one"
    fi
    for version in "$trees"/*/complete; do
        [ ! -e "$version" ] || sources+=("${version%/complete}/source")
    done
}

# Fetches a source package unless the cache has it, and forgets others of its series. Clones on one machine share the cache.
fetch_tree() {
    local version=$1 tree=$trees/$1
    [ ! -e "$tree/complete" ] || return 0
    mkdir -p "$trees"
    (
        flock 9
        [ ! -e "$tree/complete" ] || exit 0
        rm -rf "${tree:?}"
        mkdir -p "$tree"
        cd "$tree" || exit 1
        # In quotes of its own: apt reads a version with a tilde as it is.
        apt_with all apt-get -qq source "intel-ipsec-mb=$version" > fetch.log 2>&1 && mv intel-ipsec-mb-*/ source &&
            touch complete
    ) 9> "$trees/lock" || { rm -rf "${tree:?}"; return 1; }
    local other
    for other in "$trees/${version%%.*}".*; do
        [ "$other" = "$tree" ] || rm -rf "${other:?}"
    done
}

# The version that the header of a source tree has.
version_of() {
    local number
    number=$(sed -n 's/^#define IMB_VERSION_STR *"\([0-9.]*\).*"/\1/p' "$1/lib/intel-ipsec-mb.h" 2> /dev/null)
    [ -n "$number" ] && echo "$number"
}

# Convoy's library of a major version, in a folder of its own; $libraries is that.
make_library() {
    local package=convoy-ipsec-mb built
    [ "$1" != 1 ] || package=convoy-ipsec-mb-1
    built=$target/debug/deps/lib${package//-/_}.so
    if [ "$smoke" = no ] || [ ! -e "$built" ]; then
        nice cargo build --quiet --release --locked --package $package || return 1
        built=$target/release/lib${package//-/_}.so
    fi
    libraries=$work/lib$1
    mkdir -p "$libraries"
    cp "$built" "$libraries/libIPSec_MB.so.$1"
    library=$libraries/libIPSec_MB.so.$1
}

# build_program PROGRAM SOURCE LOGS: compiles a program, in $built; where it cannot be, $why tells.
build_program() {
    local name=$1 source=$2 logs=$3 assembled=() files=() folder
    built=$work/imb-$name
    # The layouts of sources of version 1 and version 2.
    if [ -d "$source/test/kat-app" ]; then
        case $name in
            wycheproof) files=("$source"/test/wycheproof-app/*.c) ;;
            kat) files=("$source"/test/kat-app/*.c "$source/test/common/utils.c") ;;
            xvalid) files=("$source/test/xvalid-app/ipsec_xvalid.c" "$source/test/common/utils.c") ;;
            perf) files=("$source"/perf/*.c) ;;
        esac
        folder=$source/test/xvalid-app
    else
        case $name in
            wycheproof) files=("$source"/test/wycheproof/*.c) ;;
            kat)
                local file
                for file in "$source"/test/*.c; do
                    case $file in */acvp_app_main.c | */job_api_fuzz_test.c | */ipsec_xvalid.c) ;; *) files+=("$file") ;; esac
                done
                ;;
            xvalid) files=("$source/test/ipsec_xvalid.c" "$source/test/utils.c") ;;
            perf) files=("$source"/perf/*.c) ;;
        esac
        folder=$source/test
    fi
    [ "$name" != perf ] || folder=$source/perf
    if [ "$name" = xvalid ] || [ "$name" = perf ]; then
        command -v nasm > /dev/null || { why="there is no assembler, nasm"; return 1; }
        nasm -felf64 -DLINUX -D__linux__ -o "$work/misc-$name.o" "$folder/misc.asm" > "$logs/build-$name.log" 2>&1 ||
            { why="it does not assemble; the log is $logs/build-$name.log"; return 1; }
        assembled=("$work/misc-$name.o")
    fi
    # The flags that matter are those of its own makefiles; it is not for speed.
    cc -O1 -w -DLINUX -D_GNU_SOURCE -DNO_COMPAT_IMB_API_053 -fno-delete-null-pointer-checks -fwrapv -fno-strict-overflow \
        -I "$source/lib" -I "$source/lib/include" -I "$source/test/include" -o "$built" "${files[@]}" "${assembled[@]}" \
        "$library" -lpthread > "$logs/build-$name.log" 2>&1 ||
        { why="it does not build; the log is $logs/build-$name.log"; return 1; }
}
