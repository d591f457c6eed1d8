# Shortcuts for CMake and its presets (CMakePresets.json). `make help` lists the targets.
PREFIX       ?= /usr/local
DESTDIR      ?=
JOBS         ?= $(shell nproc)
FUZZ_SECONDS ?= 600
SANITIZERS   := asan ubsan tsan
OWN_SOURCES   = $(shell git ls-files -co --exclude-standard 'src/*.[ch]' 'include/*.h' 'tests/*.[ch]' 'bench/*.[ch]' 'tools/*.[ch]' \
                  'examples/*.[ch]')

.DEFAULT_GOAL := build
.NOTPARALLEL: # setup runs before the build; the compilers use JOBS
.PHONY: build cuda setup demo test test-all chaos $(SANITIZERS:%=test-%) bench studies format lint fuzz install deb clean help

# Configures if packages were installed or removed since the last time (the generator re-runs CMake in all other cases) and
# builds; $(2): one target instead of all.
define build_preset
	@test build/$(1)/build.ninja -nt /var/lib/dpkg/status || { cmake --preset $(1) >/dev/null && touch build/$(1)/build.ninja; }
	@cmake --build --preset $(1) -j $(JOBS) $(if $(2),--target $(2))
endef

build:        ## release build: build/release/muster
	$(call build_preset,release)

cuda:         ## the GPU plug-in build/release/muster_cuda.so; needs nvcc
	$(call build_preset,release,muster cuda)

setup:        ## install missing Debian packages
	@scripts/setup

demo: setup   ## train on MNIST and on generated click logs, and write a report
	$(call build_preset,release,muster)
	@scripts/demo

test: setup build ## quick tests
	@ctest --test-dir build/release --output-on-failure -j 2 -LE slow

test-all: setup build ## every test, then the quick ones under each sanitizer
	@scripts/setup --deb --dev
	@ctest --test-dir build/release --output-on-failure -j 2
	@for s in $(SANITIZERS); do $(MAKE) --no-print-directory test-$$s || exit 1; done

chaos: setup build ## ten minutes of killed, stopped and cut off processes; part of test-all
	@ctest --test-dir build/release --output-on-failure -V -R chaos/test_chaos_more

# Tests with the label "slow" run in the release build only: timing is meaningless under a sanitizer. The stacks that GCC 13
# checks for use after return are not aligned for vectors of 64 bytes, so that check is off.
$(SANITIZERS:%=test-%): test-%:
	$(call build_preset,$*)
	@ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 \
	  TSAN_OPTIONS=halt_on_error=1:suppressions=$(CURDIR)/tests/tsan.supp ctest --test-dir build/$* --output-on-failure -j 2 -LE slow

bench:        ## speed and memory next to other programs, one line `name value unit` each
	@scripts/setup --bench
	@$(MAKE) --no-print-directory build >&2
	@bench/run

studies:      ## every study at a size for two cores, about half an hour: build/studies/NAME/report.html
	$(call build_preset,release,muster netlab-switch)
	@build/release/muster study all --out build/studies

format:       ## clang-format on all C files
	@scripts/setup --dev
	@clang-format -i $(OWN_SOURCES)

lint:         ## formatting, a build with warnings as errors, clang-tidy and cppcheck
	@scripts/setup --dev
	@clang-format --dry-run --Werror $(OWN_SOURCES)
	@cmake --preset release -B build/lint -DMUSTER_WERROR=ON >/dev/null
	@cmake --build build/lint -j $(JOBS)
	@clang-tidy --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option -p build/lint \
	  $$(git ls-files -co --exclude-standard 'src/*.c')
	@cppcheck --quiet --std=c11 --enable=warning,performance --inline-suppr --error-exitcode=1 \
	  --suppress=missingIncludeSystem --suppress=internalAstError --suppress=cppcheckError \
	  -D__x86_64__ -DDNNL_VERSION_MAJOR=2 -Isrc -Iinclude src

fuzz:         ## every fuzz target for FUZZ_SECONDS (600)
	@scripts/setup --dev
	$(call build_preset,fuzz)
	@for t in build/fuzz/tests/fuzz_*; do \
	  test -x $$t && test -f $$t || continue; \
	  corpus=build/fuzz/corpus/$$(basename $$t); mkdir -p $$corpus; \
	  echo "$$(basename $$t): $(FUZZ_SECONDS) s"; \
	  $$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
	    -artifact_prefix=$$corpus/../ $$corpus || exit 1; \
	done

install:      ## build and install below PREFIX (/usr/local); uses DESTDIR
	$(call build_preset,release,product)
	@DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(PREFIX)

deb:          ## Debian packages: build/deb/*.deb, checked by lintian
	@scripts/setup --deb
	@scripts/deb

clean:        ## remove build/, including benchmark data
	@rm -rf build

help:         ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
