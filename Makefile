# For people who type make; Meson does the work.
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: build test bench gpu-check demo run-server install uninstall clean

build:
	scripts/install-deps build
	scripts/build build

test:
	./run-tests

bench:
	./scripts/bench

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
