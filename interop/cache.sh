# To be sourced. `cache` is the folder for what was downloaded or built once and serves every clone on this machine:
# below the user's cache folder, or below the target folder where that cannot be written.
cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/convoy
mkdir -p "$cache" 2> /dev/null && [ -w "$cache" ] || cache=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools/cache")
mkdir -p "$cache"
