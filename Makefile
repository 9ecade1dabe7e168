# SPDX-License-Identifier: GPL-2.0-or-later
#
# make          build the engine, its tests and QEMU, as make build does
# make get      fetch the sources of QEMU and Linux
# make kernel   build the lab's kernels: stock, patched and debug
# make demo     install what is missing, build, and show a migration
# make check    install what is missing, build, and run every test;
#               SUITE="unit lab" only those below tests/unit and tests/lab,
#               SUITE=engine all tests in C
# make soak     twenty migrations with each mechanism and ring size, more with
#               libvirt, random commands and a broken KVM for an hour or more,
#               all of the lab's selftests and mutants, the image on emulated
#               servers, and the largest search of the models
# make bench    measure stock and ours, and write build/bench/report.html;
#               QUICK=1 takes 15 minutes, all of it 150; CHAPTERS="..." some
# make deb      make a Debian package of QEMU, in build/deb
# make deb-kernel
#               make Debian packages of the host kernel there; KERNEL_FLAVOUR=
#               or KERNEL_CONFIG= choose its configuration
# make image    make an image that a server starts from to be tried, in build/image
# make install  install QEMU below PREFIX (/usr/local), under DESTDIR if set
# make export-series
#               write patches for git am and quilt, in build/series
# make clean    remove build/
#
# RELEASE=13 takes QEMU 10.0 and Linux 6.12 of Debian 13, in build/debian-13; 12
# takes QEMU 7.2 and Linux 6.1.  The default is the machine's own.

PREFIX ?= /usr/local
export PREFIX
export RELEASE
# Nothing is written beside the sources; what Debian has compiled is used.
export PYTHONDONTWRITEBYTECODE = 1
export HYPOTHESIS_STORAGE_DIRECTORY = $(CURDIR)/build/hypothesis

all: build

build: release
	@scripts/deps --check
	@scripts/build-engine
	@scripts/build-qemu

# A release that there is nothing for is refused before anything is installed.
release:
	@scripts/lib/release-dir >/dev/null

deps: release
	@scripts/deps

get: release
	@scripts/get-qemu
	@scripts/get-linux

# What takes minutes need not begin where there is nothing to show.
usable-kvm:
	@[ -w /dev/kvm ] || { \
		echo "demo: you cannot write to /dev/kvm, so there is nothing to show; where a host has it, '/usr/sbin/adduser $$(id -un) kvm', run by root, lets you, after the next login" >&2; \
		exit 1; }

demo: usable-kvm deps
	@scripts/build-engine
	@scripts/build-qemu
	@build/venv/bin/python tests/migration/demo.py

check: deps
	@scripts/check $(SUITE)

kernel: release
	@scripts/deps --check
	@scripts/build-kernel stock
	@scripts/build-kernel patched
	@scripts/build-kernel debug

soak: deps
	@scripts/build-engine
	@scripts/build-qemu
	@build/venv/bin/python -m pytest tests/model tests/unit tests/migration tests/libvirt tests/lab tests/image -m soak -v -p no:cacheprovider \
		-o log_cli=true -o log_cli_level=INFO -o 'log_cli_format=%(message)s'

bench: deps
	@build/venv/bin/python -m tests.bench --check $(CHAPTERS)
	@scripts/build-engine
	@scripts/build-qemu
	@scripts/build-kernel stock
	@scripts/build-kernel patched
	@scripts/build-kernel stock-keys
	@scripts/build-kernel patched-keys
	@scripts/build-selftests patched
	@scripts/lib/other-releases scripts/build-qemu || echo 'bench: without our QEMU of another release'
	@scripts/get-packages backports || echo 'bench: without the QEMU of bookworm-backports'
	@scripts/get-packages next || echo 'bench: without the QEMU of trixie-backports'
	@build/venv/bin/python -m tests.bench $(if $(filter-out 0,$(QUICK)),--quick) $(CHAPTERS)

install: release
	@scripts/deps --check
	@scripts/build-qemu
	@scripts/install-qemu

export-series: get
	@dir=$$(scripts/lib/release-dir)/series && rm -rf "$$dir.new" && mkdir "$$dir.new" && \
		for kind in qemu linux; do \
			scripts/export-series $$kind "$$dir.new/$$kind" || exit; \
		done && \
		rm -rf "$$dir" && mv "$$dir.new" "$$dir"

deb: release
	@scripts/build-deb-qemu --check
	@scripts/deps --deb
	@scripts/build-deb-qemu

deb-kernel: release
	@scripts/deps --deb
	@scripts/build-deb-kernel

image: release
	@scripts/deps --image
	@scripts/build-image

clean:
	rm -rf build

.PHONY: all build release deps get usable-kvm demo check kernel soak bench install export-series \
	deb deb-kernel image clean
.NOTPARALLEL:
