# For people who type make; Meson does the work.
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: build test bench demo run-server install uninstall clean

build:
	scripts/install-deps build
	scripts/build build

test:
	./run-tests

bench:
	./scripts/bench

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
