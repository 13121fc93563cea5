"""A copy of OpenSSL's source whose configuration files prefer Convoy's provider."""

import pathlib
import re
import subprocess

# The sections that are added. Where a file has a section of that name, OpenSSL adds to it.
CONVOY = """
# Convoy's provider beside the default one, and preferred.
[openssl_init]
{providers}
alg_section = evp_properties

[provider_sect]
default = default_sect
convoy = convoy_sect

[default_sect]
activate = 1

[convoy_sect]
module = {provider}
activate = 1
offer = all

[evp_properties]
default_properties = ?provider=convoy
"""
ACTIVATES = re.compile(r"^\s*activate\s*=\s*(1|true|yes|on)\s*$", re.MULTILINE)
NAMES_PROVIDERS = re.compile(r"^\s*providers\s*=", re.MULTILINE)


# By this the program `openssl` works in a context of its own, which no configuration reaches.
OWN_CONTEXT = re.compile(r"^ *\$ENV\{OPENSSL_TEST_LIBCTX\} *= *\"1\";", re.MULTILINE)
PROGRAM = "apps/openssl.cnf"


def copy(source, folder, provider, with_program=True):
    """Makes the copy, of hard links; returns the files that are changed, by their paths below the source. Without
    `with_program`, the program's own configuration is left out, for tests that demand that it loads no provider."""
    subprocess.run(["cp", "-al", f"{source}/.", str(folder)], check=True)
    changed = []
    for path in candidates(folder):
        text, name = path.read_text(errors="replace"), str(path.relative_to(folder))
        if activates_default(text) and (with_program or name != PROGRAM):
            path.unlink()  # A hard link: written in place, the source would change, too.
            path.write_text(preferring_convoy(text, provider))
            changed.append(name)
    for path in (folder / "test/recipes").glob("*.t") if with_program else ():
        text = path.read_text()
        if OWN_CONTEXT.search(text):
            path.unlink()
            path.write_text(OWN_CONTEXT.sub("", text))
            changed.append(str(path.relative_to(folder)))
    return sorted(changed)


def candidates(folder):
    folder = pathlib.Path(folder)
    yield folder / PROGRAM
    # The FIPS module is not built.
    yield from (path for path in (folder / "test").glob("*.cnf") if "fips" not in path.name)
    yield from (folder / "test/recipes").glob("*_data/*.cnf")


def activates_default(text):
    """Whether a program or a library context that loads this file has the default provider, by its wish or by none. One
    that has default properties already is for tests that look at these."""
    if re.search(r"^\s*default_properties\s*=", text, re.MULTILINE):
        return False
    has_start = re.search(r"^\s*openssl_conf\s*=\s*openssl_init\s*$", text, re.MULTILINE)
    if not has_start or "openssl_init" not in sections(text):
        return False
    if not NAMES_PROVIDERS.search(text):
        return True
    if not re.search(r"^\s*default\s*=\s*default_sect\s*$", sections(text).get("provider_sect", ""), re.MULTILINE):
        return False
    # Where none is activated, the default provider is, as if none were named.
    return not ACTIVATES.search(text) or bool(ACTIVATES.search(sections(text).get("default_sect", "")))


def sections(text):
    """The text of each section, by its name."""
    parts = re.split(r"^\s*\[\s*(\w+)\s*\]", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def preferring_convoy(text, provider):
    # Modules are configured in the order of their names in the section, so one that is there stays where it is.
    providers = "" if NAMES_PROVIDERS.search(text) else "providers = provider_sect"
    return text + CONVOY.format(providers=providers, provider=provider)
