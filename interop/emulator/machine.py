"""An emulated PC: Bochs with a chosen processor, a distribution's kernel, one program as its only job.

Bochs is an interpreter, so the processor that runs the program has the instructions of its model and no
others, whatever the host is. Everything is fetched through apt, which checks it, into one folder.
"""

import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

# The level's name, and the processor that has it as Bochs calls it.
LEVELS = {
    "sse": "corei5_arrandale_m520",  # Westmere: SSE4.2, AES-NI, PCLMULQDQ; no AVX
    "avx": "corei7_sandy_bridge_2600k",  # Sandy Bridge: AVX; no AVX2
    "avx2": "corei7_haswell_4770",  # Haswell: AVX2; no AVX-512, VAES or SHA
    "avx2-sha": "ryzen",  # Zen 1: AVX2 and SHA; no VAES
    "avx512": "corei7_skylake_x",  # Skylake-X: AVX-512 F BW DQ VL; no VAES or SHA
    "avx2-vaes": "arrow_lake",  # Arrow Lake: AVX2, VAES, SHA; no AVX-512
    "avx512-vaes": "corei7_icelake_u",  # Ice Lake: everything
}
# Debian 13's, compiled here: Debian 12's own, 2.7, has a wrong SHA1RNDS4.
BOCHS_RELEASE, BOCHS_VERSION = "trixie", "3.0+dfsg-1"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
KERNEL = "linux-image-cloud-amd64"
# Guest memory in MiB, and instructions per second of the guest's clock.
MEMORY, SPEED = 512, 100_000_000
BIOS = "/usr/share/bochs/BIOS-bochs-latest"
VGA_BIOS = "/usr/share/vgabios/vgabios.bin"
LOADER = "/usr/lib/ISOLINUX/isolinux.bin"
LOADER_MODULE = "/usr/lib/syslinux/modules/bios/ldlinux.c32"
PACKAGES = {BIOS: "bochsbios", VGA_BIOS: "vgabios", LOADER: "isolinux", LOADER_MODULE: "syslinux-common"}
# Where a run ended without the program's own exit status.
NO_RESULT = 125


class Missing(Exception):
    """Something that the emulator needs is not here and cannot be had."""


class NoResult(Exception):
    """The emulated machine ended, or was ended, before the program did."""


def cache():
    """What outlives a run."""
    given = os.environ.get("CONVOY_EMULATOR_CACHE")
    folder = pathlib.Path(given) if given else harness.cache_dir() / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def need(*commands):
    """Refuses where a command or a file of PACKAGES is missing."""
    missing = [name for name in commands if shutil.which(name) is None]
    missing += [package for path, package in PACKAGES.items() if not os.path.exists(path)]
    if missing:
        raise Missing(f"not installed: {', '.join(missing)} (interop/install-deps.sh installs them as root)")


def prepare():
    """Fetches and builds what is not there yet. Yields the path of Bochs."""
    need("xorriso", "busybox")
    kernel()
    binary = cache() / f"bochs-{BOCHS_VERSION}"
    if not binary.exists():
        build(binary)
    return binary


def run_logged(command, log, **more):
    """Runs a command with its output in a log; its last lines become the error."""
    with open(log, "ab") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode != 0:
        tail = pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
        raise Missing(f"{command[0]} failed, see {log}:\n    " + "\n    ".join(tail))


def build(binary):
    """Fetches and compiles Bochs, once: about three minutes of a processor."""
    need("apt-get", "g++", "make", "tar", "xz")
    print(f"emulator: building Bochs {BOCHS_VERSION}, once; this takes minutes", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=cache()) as name:
        folder, log = pathlib.Path(name), cache() / "bochs-build.log"
        log.unlink(missing_ok=True)
        environment = private_apt(folder)
        run_logged(["apt-get", "-q", "update"], log, env=environment)
        source = ["apt-get", "-q", "source", "--tar-only", "--download-only", f"bochs={BOCHS_VERSION}"]
        run_logged(source, log, env=environment, cwd=folder)
        (archive,) = folder.glob("bochs_*.orig.tar.*")
        run_logged(["tar", "-xf", archive.name], log, cwd=folder)
        (tree,) = (path for path in folder.glob("bochs-*") if path.is_dir())
        options = ["--with-nogui", "--enable-cpu-level=6", "--enable-x86-64", "--enable-avx", "--enable-evex",
                   "--enable-fpu", "--enable-pci", "--enable-all-optimizations", "--enable-long-phy-address",
                   "--disable-docbook", "--disable-debugger", "--disable-plugins", "--disable-xpm"]
        flags = {**os.environ, "CFLAGS": "-O2", "CXXFLAGS": "-O2"}
        run_logged(["./configure", *options], log, cwd=tree, env=flags)
        run_logged(["make", f"-j{os.cpu_count() or 1}", "bochs"], log, cwd=tree)
        run_logged(["strip", "-o", str(folder / "done"), str(tree / "bochs")], log)
        os.replace(folder / "done", binary)


def private_apt(folder):
    """The environment of an apt that knows one release's sources and leaves the system's lists alone."""
    wanted = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian"]
    mirror = subprocess.run(wanted, capture_output=True, text=True, check=False).stdout.split("\n")[0]
    if not mirror or not os.path.exists(KEYS):
        raise Missing("apt knows no mirror of Debian (run apt-get update)")
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb-src [signed-by={KEYS}] {mirror} {BOCHS_RELEASE} main\n", encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists", "Dir::Cache::archives": folder / "archives",
        "Dir::Cache::pkgcache": "", "Dir::Cache::srcpkgcache": "", "APT::Sandbox::User": "",
        "Acquire::Retries": 3,
    }
    if os.getuid() == 0:
        settings["APT::Sandbox::User"] = "root"
    text = "".join(f'{key} "{value}";\n' for key, value in settings.items())
    (folder / "apt.conf").write_text(text, encoding="utf-8")
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}


def kernel():
    """The kernel image, from the package, which is unpacked and never installed."""
    image = cache() / "vmlinuz"
    if image.exists():
        return image
    need("apt-get", "apt-cache", "dpkg-deb")
    depends = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=False).stdout
    real = re.search(r"Depends: (linux-image-\S+)", depends)
    if not real:
        raise Missing(f"apt knows no {KERNEL} (run apt-get update)")
    with tempfile.TemporaryDirectory(dir=cache()) as name:
        folder = pathlib.Path(name)
        sandbox = ["-o", "APT::Sandbox::User=root"] if os.getuid() == 0 else []
        run_logged(["apt-get", "-q", *sandbox, "download", real[1]], cache() / "kernel.log", cwd=folder)
        (package,) = folder.glob("*.deb")
        run_logged(["dpkg-deb", "-x", package.name, "."], cache() / "kernel.log", cwd=folder)
        (found,) = folder.glob("boot/vmlinuz-*")
        os.replace(found, image)
    return image


INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
stty -F /dev/ttyS1 raw
booted=$(cut -d' ' -f1 /proc/uptime)
{ cd /tmp; sh /run.sh < /dev/null 2>&1; echo "$?" > /tmp/status; } | cat > /dev/ttyS1
printf '\n@@END %s %s %s\n' "$(cat /tmp/status)" "$booted" "$(cut -d' ' -f1 /proc/uptime)" > /dev/ttyS1
# The serial line drains; an emulator skips idle time.
sleep 1
poweroff -f
"""


def quoted(text):
    """The text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def libraries(program):
    """The shared libraries of a program, the loader included; none of a static one."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    return [pathlib.Path(path) for path in re.findall(r"(/\S+)", listed)]


def initrd(program, arguments, variables, files):
    """The guest's file system as a cpio archive: name -> (mode, content)."""
    tree = {"init": (0o755, INIT.encode()), "bin/busybox": (0o755, pathlib.Path(shutil.which("busybox")).read_bytes())}
    tree["program"] = (0o755, pathlib.Path(program).read_bytes())
    for path in libraries(program):
        tree[str(path).lstrip("/")] = (0o755, path.read_bytes())
    for host, guest in files:
        host, guest = pathlib.Path(host), guest.lstrip("/")
        inside = [path for path in host.rglob("*") if path.is_file()] if host.is_dir() else [host]
        for path in inside:
            name = f"{guest}/{path.relative_to(host)}" if host.is_dir() else guest
            tree[name] = (0o755 if os.access(path, os.X_OK) else 0o644, path.read_bytes())
    lines = ["#!/bin/busybox sh", *(f"export {name}={quoted(value)}" for name, value in variables)]
    lines.append(" ".join(["exec", "/program", *map(quoted, arguments)]))
    tree["run.sh"] = (0o755, "\n".join(lines).encode() + b"\n")
    return pack(tree)


def pack(tree):
    """A cpio archive of the kind that kernels unpack, with the folders that its files need."""
    folders = {"proc", "sys", "dev", "tmp"}
    for name in tree:
        folders.update(str(parent) for parent in pathlib.PurePosixPath(name).parents if str(parent) != ".")
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in sorted(folders)]
    entries += [(name, stat.S_IFREG | mode, content) for name, (mode, content) in tree.items()]
    out = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out)


def write_disc(folder, archive):
    """A bootable disc with the kernel and its file system."""
    disc = folder / "disc"
    (disc / "isolinux").mkdir(parents=True)
    for path in (LOADER, LOADER_MODULE):
        shutil.copy(path, disc / "isolinux")
    shutil.copy(kernel(), disc / "vmlinuz")
    (disc / "initrd").write_bytes(archive)
    # clearcpuid: Linux drops ERMS, for Bochs lacks the MSR behind it, but keeps FSRM, and hangs in its
    # memmove. tsc_early_khz: the guest's TSC counts instructions, whatever CPUID leaf 0x15 says.
    line = ("initrd=/initrd console=ttyS0 quiet loglevel=3 panic=-1 nokaslr mitigations=off edd=off "
            f"raid=noautodetect cryptomgr.notests=1 clearcpuid=fsrm tsc_early_khz={SPEED // 1000}")
    configuration = f"default one\nprompt 0\nlabel one\n kernel /vmlinuz\n append {line}\n"
    (disc / "isolinux" / "isolinux.cfg").write_text(configuration, encoding="utf-8")
    command = ["xorriso", "-as", "mkisofs", "-quiet", "-o", str(folder / "boot.iso"), "-b", "isolinux/isolinux.bin",
               "-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", str(disc)]
    run_logged(command, folder / "xorriso.log")
    shutil.rmtree(disc)


def configuration(folder, model):
    """What Bochs reads at its start."""
    return f"""display_library: nogui
memory: guest={MEMORY}, host={MEMORY}
romimage: file={BIOS}
vgaromimage: file={VGA_BIOS}
cpu: model={model}, count=1, ips={SPEED}, reset_on_triple_fault=0, ignore_bad_msrs=1
clock: sync=none, time0=utc
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path={folder}/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={folder}/console
com2: enabled=1, mode=file, dev={folder}/output
log: {folder}/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
"""


def last_lines(path):
    """The end of a log; nothing if there is none."""
    return path.read_text(encoding="utf-8", errors="replace").splitlines()[-12:] if path.exists() else []


def run(level, program, arguments=(), variables=(), files=(), limit=600):
    """Runs a program on a processor of `level`.

    Yields its exit status (132 where it met an instruction that the level lacks), its output, and the
    seconds that the run took. `files` are pairs of a path here and one in the guest; `limit` is in seconds.
    """
    bochs = prepare()
    archive = initrd(program, arguments, variables, files)
    with tempfile.TemporaryDirectory(prefix="convoy-emulator-") as name:
        folder = pathlib.Path(name)
        write_disc(folder, archive)
        text = configuration(folder, LEVELS[level])
        (folder / "bochsrc").write_text(text, encoding="utf-8")
        start = time.monotonic()
        with open(folder / "stdout", "wb") as out:
            child = subprocess.Popen([bochs, "-q", "-f", folder / "bochsrc"], cwd=folder,
                                     stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
            try:
                child.wait(limit)
            except subprocess.TimeoutExpired:
                pass
            finally:
                child.kill()
                child.wait()
        output = (folder / "output").read_bytes() if (folder / "output").exists() else b""
        end = re.search(rb"\n@@END (\d+) (\S+) (\S+)\s*$", output)
        if not end:
            why = f"no result within {limit} s" if child.returncode == -9 else "the emulator ended early"
            logs = ("output", "console", "stdout", "bochs.log")
            raise NoResult("\n    ".join([why, *(line for log in logs for line in last_lines(folder / log))]))
        return int(end[1]), output[: end.start()].decode(errors="replace"), time.monotonic() - start
