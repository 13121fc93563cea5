#!/bin/sh
# Fetches the vectors of NIST (CAVP) and of RFCs as the Python package cryptography-vectors carries them, and unpacks
# those for ciphers and MACs into target/vectors, or into the folder given. Needs python3 with pip; no root, and nothing is installed.
set -eu

cd "$(dirname "$0")/.."
folder=${1:-target/vectors}
version=50.0.2
marker="$folder/ciphers-old-and-new-and-macs-$version"

if [ -e "$marker" ]; then
    echo "vectors are in $folder"
    exit 0
fi

. interop/cache.sh
download=$cache/vectors-$version
mkdir -p "$folder" "$download"
if ! ls "$download"/*.whl > /dev/null 2>&1; then
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$download" "cryptography-vectors==$version"
fi
# A wheel is a zip archive.
python3 - "$download" "$folder" <<'PYTHON'
import pathlib, sys, zipfile

download, folder = map(pathlib.Path, sys.argv[1:])
(wheel,) = download.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    ciphers = ("AES", "ChaCha20Poly1305", "3DES/CBC", "Camellia")
    folders = [f"ciphers/{cipher}/" for cipher in ciphers] + ["CMAC/", "HMAC/"]
    folders = tuple("cryptography_vectors/" + folder for folder in folders)
    wanted = [name for name in archive.namelist() if name.startswith(folders)]
    archive.extractall(folder, wanted)
print(f"{len(wanted)} files from {wheel.name} in {folder}")
PYTHON
touch "$marker"
