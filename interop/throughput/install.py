"""What the comparison needs and does not come with a machine."""

import os
import shutil
import subprocess
import sys

from candidates import target_dir

# Packages with the program or plugin that tells whether they are there.
PACKAGES = {
    "iperf3": "iperf3",
    "iproute2": "ip",
    "iputils-ping": "ping",
    "tcpdump": "tcpdump",
    "wireguard-tools": "wg",
    "charon-systemd": "charon-systemd",
    "strongswan-swanctl": "swanctl",
    "libcharon-extra-plugins": "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so",
    "libstrongswan-standard-plugins": "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
}
WIREGUARD_GO = "golang.zx2c4.com/wireguard"


def everything():
    """Installs what is missing. What cannot be had is said, and its candidate is skipped later."""
    missing = [package for package, proof in PACKAGES.items() if not is_there(proof)]
    if missing:
        debian(missing)
    wireguard_go()


def is_there(proof):
    return os.path.exists(proof) if proof.startswith("/") else shutil.which(proof) is not None


def debian(packages):
    if not shutil.which("apt-get"):
        return say(f"no apt-get here; not installed: {' '.join(packages)}")
    say(f"installing {' '.join(packages)}")
    # `wireguard-tools` recommends a kernel module that is of no use here.
    apt("update")
    apt("install", "-y", "--no-install-recommends", *packages)


def apt(*arguments):
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=3", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode != 0:
        say(f"apt-get {arguments[0]} failed:\n{done.stdout.strip()[-1500:]}")


def wireguard_go():
    """The newest wireguard-go, by Go's own means, into the build folder."""
    folder = target_dir().resolve() / "tools" / "bin"
    if (folder / "wireguard-go").exists():
        return
    if not shutil.which("go"):
        return say("no Go here, so wireguard-go is not built")
    say(f"building {WIREGUARD_GO}")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["go", "install", f"{WIREGUARD_GO}@latest"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "GOBIN": str(folder)}
    )
    if done.returncode != 0:
        return say(f"{' '.join(command)} failed:\n{done.stderr.strip()[-1500:]}")
    # The module's command is called after the module's last part.
    (folder / "wireguard").rename(folder / "wireguard-go")


def say(text):
    print(f"install: {text}", file=sys.stderr, flush=True)
