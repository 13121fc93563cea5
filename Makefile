# Thin on purpose: everything real is in cargo and in `cargo xtask`.

CARGO  ?= cargo
PREFIX ?= /usr/local
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help build demo test check install

help:
	@echo "make demo              two gateways, real traffic through ESP, a summary"
	@echo "make test              everything CI runs, oracles included"
	@echo "make check             the same without the oracles and without installing packages"
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

install: build
	install -D -m 0755 $(TARGET)/release/convoy $(DESTDIR)$(PREFIX)/bin/convoy
