# For people who type make; Meson does the work.
PREFIX ?= /usr/local
DESTDIR ?=
# The processor that a bundle is for: x86_64 or aarch64; this machine's by default.
ARCH ?=

.PHONY: build test bench bundle deb gpu-check demo run-server install uninstall clean

build:
	scripts/install-deps build
	scripts/build build

test:
	./run-tests

bench:
	./scripts/bench

bundle:
	scripts/install-deps $(if $(filter-out $(shell uname -m),$(ARCH)),$(ARCH),build)
	scripts/bundle $(ARCH)

# build/gpuslice_VERSION_ARCH.deb
deb:
	scripts/install-deps deb
	scripts/deb

# On this machine's GPU, or with SIMULATED=1 on a simulated one; OPTIONS are those of gpu-check --help.
gpu-check: build
	"$$(scripts/stage)"/bin/gpu-check $(if $(SIMULATED),--simulated) $(OPTIONS)

demo:
	./run-demo

run-server: build
	exec "$$(scripts/stage)"/bin/gpusliced $(if $(SIMULATED),--simulated)

install: build
	meson configure build -Dprefix=$(abspath $(PREFIX))
	meson install -C build $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

uninstall:
	DESTDIR=$(DESTDIR) ninja -C build uninstall

clean:
	rm -rf build
