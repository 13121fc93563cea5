# Thin on purpose: everything real is in cargo and in `cargo xtask`.

CARGO  ?= cargo
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
UNITS ?= $(PREFIX)/lib/systemd/system
SHARE ?= $(PREFIX)/share
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What takes debug information out of what is installed; with STRIP= it stays. Packagers, who install below
# DESTDIR, keep it elsewhere by tools of their own.
STRIP ?= $(if $(DESTDIR),,strip)
INSTALL_BINARY = install -D -m 0755 $(if $(STRIP),-s --strip-program=$(STRIP))

# RUSTFLAGS in the environment replaces what .cargo/config.toml asks for, so that is added to it.
SOFT := $(shell sed -n 's/^ *"--cfg", "\(.*\)",$$/--cfg \1/p' .cargo/config.toml | tr -d '\\')
ifneq ($(origin RUSTFLAGS),undefined)
override RUSTFLAGS := $(RUSTFLAGS) $(SOFT)
export RUSTFLAGS
endif

# What only helps the next build costs a machine that builds once.
ifdef CI
export CARGO_INCREMENTAL ?= 0
endif

.PHONY: help build bench bench-xfrm bench-wire ipsec-mb-compat demo-build demo demo-ike test check test-levels test-tiers test-soak test-long audit rustflags \
	constant-time library cryptodev install install-files install-library install-library-files uninstall

help:
	@echo "make demo              two gateways, real traffic through ESP, a summary"
	@echo "make demo-ike          the same, with tunnels that unmodified strongSwan makes; installs it as root"
	@echo "make demo-ike TUNNELS=12    twelve of them, under load"
	@echo "make test              everything CI runs, oracles included"
	@echo "make check             the same without the oracles and without installing packages"
	@echo "make test-levels       the tests and oracles once for every CPU tier that can be denied here; an hour"
	@echo "make test-tiers        the crypto tests on emulated processors of seven levels; takes an hour"
	@echo "make test-soak         an hour of leak protection against kills, foreign rules and random policies; SOAK=3600 SEED=1"
	@echo "make test-long         all that is too long for the gate; cargo xtask long --list tells what"
	@echo "make constant-time     looks for branches on secrets, under Valgrind"
	@echo "make audit             asks cargo-deny of the crates used: advisories, licences, sources, duplicates"
	@echo "make bench             the figures of the field's studies on one page, convoy-report/report.html; BENCH_FLAGS=--quick"
	@echo "make bench-xfrm        the time of an IKE daemon's request for an SA or a policy, by how many there are; needs root"
	@echo "make bench-wire        the same, and one TCP stream while a gateway is flooded; needs root"
	@echo "make build             the release build of convoy, of what it preloads, and of the OpenSSL provider"
	@echo "make library           the release build of the C library"
	@echo "make ipsec-mb-compat PREFIX=$(PREFIX)    libIPSec_MB.so.1 and .so.2 for programs of intel-ipsec-mb, below lib/convoy-compat"
	@echo "make cryptodev         what crypto devices of DPDK need, where DPDK is installed; make install takes it along"
	@echo "make install PREFIX=$(PREFIX) LIBDIR=$(LIBDIR)    STRIP= keeps debug information"
	@echo "make uninstall PREFIX=$(PREFIX) LIBDIR=$(LIBDIR)    removes all of it; a changed /etc/convoy stays"

build:
	$(CARGO) build --release --locked --package convoy --package convoy-xfrm-preload \
		--package convoy-openssl

# Peers are installed where apt can; the report names those that are missing.
bench:
	./interop/install-deps.sh
	@$(MAKE) --no-print-directory build
	$(TARGET)/release/convoy bench report $(BENCH_FLAGS)

# Time of a daemon's request over the XFRM socket, by how many SAs and policies there are.
bench-xfrm:
	@$(MAKE) --no-print-directory build
	$(CARGO) build --release --locked --package convoy-control --example xfrm_load
	./interop/throughput/xfrm_requests.sh $(TARGET)/release/convoy $(TARGET)/release/examples/xfrm_load

bench-wire: bench-xfrm
	./interop/throughput/floods.py --convoy $(TARGET)/release/convoy

# The C library; its name among shared libraries changes with the minor version (see its build.rs).
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SO      := libconvoy_crypto.so
SONAME  := $(SO).$(basename $(VERSION))

library:
	$(CARGO) build --release --locked --package convoy-capi
	@$(MAKE) --no-print-directory $(ARCHIVE)

# Where below the target folder the library is that is installed: the gate installs the one of its tests.
LIBRARY ?= release
ARCHIVE := $(TARGET)/$(LIBRARY)/libconvoy_crypto.a

# What cargo makes has all of Rust's library in it, by its names.
$(ARCHIVE): $(TARGET)/$(LIBRARY)/libconvoy_capi.a crates/capi/archive.sh
	READELF='$(READELF)' LD='$(LD)' OBJCOPY='$(OBJCOPY)' AR='$(AR)' crates/capi/archive.sh $< $@

# What stands between Convoy and DPDK; it is loaded where a site file asks for a device of DPDK's.
CRYPTODEV ?= $(TARGET)/release/libconvoy_cryptodev.so

cryptodev:
	@pkg-config --exists 'libdpdk >= 22.11' || { \
		echo "DPDK 22.11 or newer is needed, with its headers; Debian and Ubuntu: apt install libdpdk-dev" >&2; exit 1; }
	@mkdir -p $(dir $(CRYPTODEV))
	$(CC) -std=c11 -D_GNU_SOURCE -DALLOW_EXPERIMENTAL_API -O2 -g -Wall -Wextra -Werror -fPIC -shared \
		$$(pkg-config --cflags libdpdk) -o $(CRYPTODEV) crates/cryptodev/shim/convoy_cryptodev.c \
		$$(pkg-config --libs libdpdk)

# What the demonstrations run, and no more, in half the time of a release build.
demo-build:
	CONVOY_PROFILE=quick $(CARGO) build --profile quick --locked --package convoy --package convoy-xfrm-preload \
		--no-default-features

demo: demo-build
	$(TARGET)/quick/convoy demo $(DEMO_FLAGS)

# What cannot be installed is named by the demonstration itself.
demo-ike: demo-build
	-./interop/install-strongswan.sh
	$(TARGET)/quick/convoy demo ike $(if $(TUNNELS),--tunnels $(TUNNELS)) $(DEMO_FLAGS)

test:
	./interop/install-deps.sh
	$(CARGO) xtask ci --interop

check:
	$(CARGO) xtask ci

test-levels test-tiers test-soak test-long:
	./interop/install-deps.sh $(if $(filter test-long,$@),--long)
	$(CARGO) xtask $(XTASK_$@)

XTASK_test-levels = levels
XTASK_test-tiers = ci emulator
XTASK_test-soak = ci soak
XTASK_test-long = long

audit:
	$(CARGO) xtask ci audit

# What programs that build without make need.
rustflags:
	$(info $(or $(RUSTFLAGS),$(SOFT)))
	@:

constant-time:
	./interop/constant-time/run.sh

install: build install-library
	@$(MAKE) --no-print-directory install-files

# Where below the target folder the programs are that are installed: a test installs its own.
BUILT ?= $(TARGET)/release
PRELOAD = lib/convoy/libconvoy_xfrm.so

install-files:
	$(INSTALL_BINARY) $(BUILT)/convoy $(DESTDIR)$(PREFIX)/bin/convoy
	$(INSTALL_BINARY) $(BUILT)/libconvoy_xfrm_preload.so $(DESTDIR)$(PREFIX)/$(PRELOAD)
	$(INSTALL_BINARY) $(BUILT)/libconvoy_openssl.so $(DESTDIR)$(PREFIX)/lib/convoy/libconvoy_openssl.so
	test ! -e $(CRYPTODEV) || $(INSTALL_BINARY) $(CRYPTODEV) $(DESTDIR)$(PREFIX)/lib/convoy/libconvoy_cryptodev.so
	$(BUILT)/convoy manual $(DESTDIR)$(SHARE) > /dev/null
	install -d $(DESTDIR)$(UNITS)
	for unit in convoy convoy-helper@; do \
		sed -e 's|@PREFIX@|$(PREFIX)|' systemd/$$unit.service.in > $(DESTDIR)$(UNITS)/$$unit.service; \
	done
	install -m 0644 systemd/convoy-helper.socket $(DESTDIR)$(UNITS)/convoy-helper.socket
	install -D -m 0644 systemd/own-user.conf $(DESTDIR)$(PREFIX)/lib/convoy/own-user.conf
	test -e $(DESTDIR)/etc/convoy/convoy.toml || install -D -m 0600 systemd/convoy.toml $(DESTDIR)/etc/convoy/convoy.toml
	@test -d /run/systemd/system && test -z "$(DESTDIR)" && systemctl daemon-reload || true
	@echo "installed; \`convoy enable strongswan\` (or libreswan) has that daemon start under Convoy"

# A gateway that runs would leave networks closed, and nothing to open them with. State of keys is never removed.
CONVOY = $(DESTDIR)$(PREFIX)/bin/convoy
INSTALLED = $(PREFIX)/bin/convoy $(PREFIX)/$(PRELOAD) \
	$(addprefix $(PREFIX)/lib/convoy/,libconvoy_openssl.so libconvoy_cryptodev.so own-user.conf) \
	$(addprefix $(UNITS)/,convoy.service convoy-helper@.service convoy-helper.socket) \
	$(PREFIX)/include/convoy_crypto.h \
	$(addprefix $(LIBDIR)/,$(SO).$(VERSION) $(SONAME) $(SO) libconvoy_crypto.a pkgconfig/convoy_crypto.pc) \
	$(addprefix $(PREFIX)/lib/convoy-compat/,libIPSec_MB.so.1 libIPSec_MB.so.2)

uninstall:
	@test -n "$(DESTDIR)" || ! systemctl is-active --quiet convoy 2> /dev/null || { \
		echo "convoy.service runs: systemctl disable --now convoy; convoy open /etc/convoy/convoy.toml" >&2; exit 1; }
	test ! -x $(CONVOY) || for daemon in strongswan libreswan; do \
		$(CONVOY) enable $$daemon --off --root $(or $(DESTDIR),/) || exit 1; done
	test ! -x $(CONVOY) || $(CONVOY) manual --list $(DESTDIR)$(SHARE) | tr '\n' '\0' | xargs -0 rm -f
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	! cmp -s systemd/convoy.toml $(DESTDIR)/etc/convoy/convoy.toml || rm $(DESTDIR)/etc/convoy/convoy.toml
	@for folder in $(PREFIX)/lib/convoy $(PREFIX)/lib/convoy-compat /etc/convoy; do \
		test ! -d $(DESTDIR)$$folder || rmdir $(DESTDIR)$$folder 2> /dev/null || echo "left: $(DESTDIR)$$folder" >&2; done
	@test -d /run/systemd/system && test -z "$(DESTDIR)" && systemctl daemon-reload || true

install-library: library
	@$(MAKE) --no-print-directory install-library-files

# In a folder of its own: the distribution may have files of these names.
ipsec-mb-compat:
	$(CARGO) build --release --locked --package convoy-ipsec-mb --package convoy-ipsec-mb-1
	$(INSTALL_BINARY) $(TARGET)/release/libconvoy_ipsec_mb.so $(DESTDIR)$(PREFIX)/lib/convoy-compat/libIPSec_MB.so.2
	$(INSTALL_BINARY) $(TARGET)/release/libconvoy_ipsec_mb_1.so $(DESTDIR)$(PREFIX)/lib/convoy-compat/libIPSec_MB.so.1
	@echo "LD_LIBRARY_PATH=$(PREFIX)/lib/convoy-compat has programs of intel-ipsec-mb find it"

install-library-files: $(ARCHIVE)
	install -D -m 0644 crates/capi/include/convoy_crypto.h $(DESTDIR)$(PREFIX)/include/convoy_crypto.h
	$(INSTALL_BINARY) $(TARGET)/$(LIBRARY)/libconvoy_capi.so $(DESTDIR)$(LIBDIR)/$(SO).$(VERSION)
	ln -sf $(SO).$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/$(SO)
	install -D -m 0644 $(ARCHIVE) $(DESTDIR)$(LIBDIR)/libconvoy_crypto.a
	$(if $(STRIP),$(STRIP) --strip-debug $(DESTDIR)$(LIBDIR)/libconvoy_crypto.a)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	crates/capi/pkg-config.sh $(PREFIX) $(LIBDIR) $(VERSION) > $(DESTDIR)$(LIBDIR)/pkgconfig/convoy_crypto.pc
