#!/bin/sh
# Fetches OpenSSL's own vectors of the ciphers that the provider has (test/recipes/30-test_evp_data) out of the
# distribution's source package, and unpacks them into target/vectors/openssl, or into the folder given. Needs apt-get
# and the mirror that the system has; no root, and nothing is installed. Ends with 77 where they are not to be had.
set -eu

cd "$(dirname "$0")/.."
folder=${1:-target/vectors/openssl}
files="evpciph_aes_common.txt evpciph_aes_stitched.txt evpciph_chacha.txt"

skip() {
    echo "SKIPPED: OpenSSL's own vectors: $1"
    exit 77
}

if [ -e "$folder/complete" ]; then
    echo "OpenSSL's vectors are in $folder"
    exit 0
fi
command -v apt-get > /dev/null || skip "apt-get is not here, whose source package has them"

. interop/cache.sh
download=$cache/openssl-source
mkdir -p "$folder" "$download"
if ! ls "$download"/openssl_3*.orig.tar.gz > /dev/null 2>&1; then
    # Lists of its own, so that those of the system stay as they are.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' \
        'Component: main' | sort -u > "$work/sources.list"
    [ -s "$work/sources.list" ] || skip "apt-get knows no list of packages; apt-get update reads them"
    set -- -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache"
    apt-get "$@" update || skip "the mirror's list of source packages cannot be read"
    (cd "$work" && apt-get "$@" source --download-only --tar-only openssl) \
        || skip "the source package cannot be fetched"
    mv "$work"/openssl_3*.orig.tar.gz "$download" || skip "the source package is not that of OpenSSL 3"
fi
for file in $files; do
    tar -xzf "$download"/openssl_3*.orig.tar.gz -C "$folder" --strip-components=4 --wildcards \
        "*/test/recipes/30-test_evp_data/$file"
done
touch "$folder/complete"
echo "OpenSSL's vectors are in $folder"
