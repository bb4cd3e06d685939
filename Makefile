# For people who type make; Meson does the work.
PREFIX ?= /usr/local
DESTDIR ?=
# The processor that a bundle is for: x86_64 or aarch64; this machine's by default.
ARCH ?=

# How long `make fuzz` looks, over all targets, and `make soak` goes on.
SECONDS = 600

.PHONY: build test lint fuzz bench bundle deb gpu-check demo demo-fake run-server install uninstall clean soak

build:
	scripts/install-deps build
	scripts/build build

test:
	./run-tests

fuzz:
	scripts/install-deps fuzz
	nice scripts/fuzz $(SECONDS)

bench:
	./scripts/bench

# Everything at once, and what must be true after each step. SEED says which.
soak:
	scripts/soak $(SECONDS) $(SEED)

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

# A program on a simulated GPU of 128 MiB, without a session: two allocations fit, the third is refused.
demo-fake: build
	prefix="$$(scripts/stage)" && LD_LIBRARY_PATH="$$prefix/lib/gpuslice/simulated" FAKECUDA_NAME=demo-fake-$$$$ \
		FAKECUDA_CONTEXT_BYTES=0 FAKECUDA_TOTAL_MEM=134217728 ALLOC_BYTES=67108864 ITERATIONS=5 \
		"$$prefix/share/gpuslice/examples/bin/target_app"

lint:
	scripts/lint

run-server: build
	exec "$$(scripts/stage)"/bin/gpusliced $(if $(SIMULATED)$(filter-out 0,$(GPUSLICE_SIMULATED)),--simulated)

install: build
	meson configure build -Dprefix=$(abspath $(PREFIX))
	meson install -C build $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

uninstall:
	DESTDIR=$(DESTDIR) ninja -C build uninstall

clean:
	rm -rf build
