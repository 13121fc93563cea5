# Thin on purpose: everything real is in cargo and in `cargo xtask`.

CARGO  ?= cargo
PREFIX ?= /usr/local
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help build demo test check test-tiers constant-time install

help:
	@echo "make demo              two gateways, real traffic through ESP, a summary"
	@echo "make test              everything CI runs, oracles included"
	@echo "make check             the same without the oracles and without installing packages"
	@echo "make test-tiers        the crypto tests on emulated processors of seven levels; takes an hour"
	@echo "make constant-time     looks for branches on secrets, under Valgrind"
	@echo "make build             the release build of convoy"
	@echo "make install PREFIX=$(PREFIX)"

build:
	$(CARGO) build --release --package convoy

demo: build
	$(TARGET)/release/convoy demo $(DEMO_FLAGS)

test:
	./interop/install-deps.sh
	$(CARGO) xtask ci --interop

check:
	$(CARGO) xtask ci

test-tiers:
	./interop/install-deps.sh
	./interop/emulator/test_tiers.py $(TIER_FLAGS)

constant-time:
	./interop/constant-time/run.sh

install: build
	install -D -m 0755 $(TARGET)/release/convoy $(DESTDIR)$(PREFIX)/bin/convoy
