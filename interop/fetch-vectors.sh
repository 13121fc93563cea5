#!/bin/sh
# Fetches NIST's cipher vectors (CAVP) as the Python package cryptography-vectors carries them, and unpacks them into
# target/vectors, or into the folder given. Needs python3 with pip; no root, and nothing is installed.
set -eu

cd "$(dirname "$0")/.."
folder=${1:-target/vectors}
version=50.0.2
marker="$folder/cryptography-vectors-$version"

if [ -e "$marker" ]; then
    echo "vectors are in $folder"
    exit 0
fi

mkdir -p "$folder"
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$download" "cryptography-vectors==$version"
# A wheel is a zip archive.
python3 - "$download" "$folder" <<'PYTHON'
import pathlib, sys, zipfile

download, folder = map(pathlib.Path, sys.argv[1:])
(wheel,) = download.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    wanted = [name for name in archive.namelist() if "/ciphers/AES/" in name]
    archive.extractall(folder, wanted)
print(f"{len(wanted)} files from {wheel.name} in {folder}")
PYTHON
touch "$marker"
