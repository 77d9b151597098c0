# penstock: `make demo` and `make test` need only Python 3.11+ and a Rust toolchain.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.dev

.PHONY: dev demo test test-rest test-all faults fuzz lint reference format bench records docs wheel try-wheel bundle try-bundle bom release install clean

# What a user needs; `make dev` adds what tests, linters and the documentation need.
install: $(STAMP)

dev: $(DEV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Editable: Python changes need no reinstall, a change of Rust or of the dependencies does.
SOURCES := pyproject.toml rust/Cargo.toml rust/Cargo.lock $(wildcard rust/src/*.rs rust/src/*/*.rs rust/src/*.txt)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable
$(STAMP): $(BIN)/python $(SOURCES)
	$(INSTALL) .
	@touch $@

$(DEV): $(BIN)/python $(SOURCES)
	$(INSTALL) '.[dev,docs]'
	@touch $(STAMP) $@

demo: $(STAMP)
	$(BIN)/penstock demo

# Two processes for each processor: tests wait for servers half of their time. With PYTHONDONTWRITEBYTECODE, each of them,
# and each command that a test runs, would compile all modules again: half of the time. `make lint` runs tests/lint.
PYTEST := PYTHONDONTWRITEBYTECODE= .ci/isolated $(BIN)/python -m pytest -q --ignore tests/lint \
	--numprocesses $$((2 * $$(nproc))) --maxprocesses 4 --dist worksteal

test: $(DEV)
	cargo test --quiet --manifest-path rust/Cargo.toml --target-dir rust/target
	$(PYTEST) --part=main

# What `make test` leaves out. LIMIT_S=600 ends it after so many seconds; the tests not begun by then are skipped. They run in
# the order of conftest.py, by which what no other test does comes first.
test-rest: $(DEV)
	cargo test --quiet --manifest-path rust/Cargo.toml --target-dir rust/target --features portable-lanes
	$(PYTEST) --dist load --maxschedchunk 8 --part=rest $(if $(LIMIT_S),--limit-s=$(LIMIT_S))

test-all: test test-rest

# The long campaign: kills, crashes, failovers and the like until so many points count. It goes on where it ended.
# Behind it one load, cut at each of its packets, and undos.
faults: $(DEV)
	PYTHONPATH=tests $(BIN)/python -m support.campaign --points 2000 --record benchmarks/results/faults.jsonl
	PYTHONPATH=tests $(BIN)/python -m support.campaign.packets
	PYTHONPATH=tests $(BIN)/python -m support.campaign.undos --points 300 --record

lint: $(DEV)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/stubtest penstock._native --mypy-config-file pyproject.toml --allowlist rust/stubtest.txt >/dev/null
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q tests/lint
	$(BIN)/python -m benchmarks old
	cargo fmt --manifest-path rust/Cargo.toml --check
	cargo clippy --quiet --manifest-path rust/Cargo.toml --target-dir rust/target --all-targets -- -D warnings
	$(if $(shell command -v go),go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12,@echo 'Go is not installed, so actionlint has not read') .github/workflows/*.yml

# The reference of commands and keys, the man page, and api/keywords.py, from the declared options.
reference: $(DEV)
	PYTHONPATH=tests $(BIN)/python -m support.reference

format: $(DEV)
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks
	cargo fmt --manifest-path rust/Cargo.toml

bench: $(DEV)
	$(BIN)/python -m benchmarks

# The records that this commit lacks, on an idle machine: hours. It goes on where it ended. RECORDS has options, such as the
# other tools that are compared; --only-old makes only those whose own code has changed.
records: $(DEV)
	$(BIN)/python -m benchmarks records $(RECORDS)

# The documentation as a site, in build/site; a dead link or a page that is not listed in mkdocs.yml is an error.
docs: $(DEV)
	rm -rf build/pages
	mkdir -p build/pages/benchmarks
	ln -s $(addprefix $(CURDIR)/,README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs) build/pages/
	ln -s $(addprefix $(CURDIR)/benchmarks/,README.md results) build/pages/benchmarks/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The sdist, and from it a wheel for Linux on each of ARCHS (aarch64 is the other one, for which rustup has the target): glibc
# 2.28 and later, by zig's linker, and Python 3.11 and later.
# WHEEL_PROFILE=trial builds without LTO and with slow crates, for CI.
ARCHS ?= $(shell uname -m)
WHEEL_PROFILE ?= release
TOOLS := build/tools/bin
$(TOOLS)/.installed: Makefile
	$(PYTHON) -m venv build/tools
	$(TOOLS)/python -m pip install --quiet --disable-pip-version-check 'maturin>=1.9,<2' ziglang auditwheel abi3audit
	@touch $@

wheel: $(TOOLS)/.installed
	rm -rf dist
	for arch in $(ARCHS); do \
		{ [ $$arch = $$(uname -m) ] || rustup target add $$arch-unknown-linux-gnu; } && \
		PATH="$(CURDIR)/$(TOOLS):$$PATH" CARGO_TARGET_DIR="$(CURDIR)/build/target" maturin build --quiet --profile $(WHEEL_PROFILE) --sdist \
			--zig --target $$arch-unknown-linux-gnu --compatibility manylinux_2_28 --out dist && \
		$(TOOLS)/auditwheel show dist/*_$$arch.whl | grep "tag: \"manylinux_2_28_$$arch\"" || exit; \
	done
	$(TOOLS)/abi3audit --strict dist/*.whl

# Installs the wheel where there is no Rust, and uses it there.
try-wheel: wheel
	PYTHON=$(PYTHON) .ci/try-wheel dist/*_$$(uname -m).whl

# A wheel with all that it depends on, in one file for hosts without internet, which need the version of Python that
# PYTHON has here. EXTRAS=[report] adds what an extra needs.
FOR_GLIBC := $(foreach tag,_2_28 _2_27 _2_26 _2_24 _2_17 2014 _2_12 2010 _2_5 1,--platform manylinux$(tag)_$$arch)
bundle: wheel
	rm -rf build/bundle
	for arch in $(ARCHS); do \
		$(TOOLS)/pip download --quiet --disable-pip-version-check --only-binary :all: $(FOR_GLIBC) \
			--dest build/bundle/$$arch/wheels "$$(echo dist/*_$$arch.whl)$(EXTRAS)" && \
		tar --create --directory build/bundle/$$arch --owner 0 --group 0 --sort name wheels --file "$$(echo dist/*.tar.gz | \
			sed 's/.tar.gz//')-$$arch-$$($(TOOLS)/python -c 'import sys; print(sys.implementation.cache_tag)').tar" || exit; \
	done

# Installs the bundle where there is neither Rust nor a network, and uses it.
try-bundle: bundle
	PYTHON=$(PYTHON) unshare --net $$([ $$(id -u) = 0 ] || echo --map-current-user) .ci/try-wheel --no-index dist/*-$$(uname -m)-*.tar

# The bill of materials of the bundles, by CycloneDX. What is in them is the same for all processors.
$(TOOLS)/cyclonedx-py: $(TOOLS)/.installed
	$(TOOLS)/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8'

bom: bundle $(TOOLS)/cyclonedx-py
	rm -rf build/bom
	$(PYTHON) -m venv --without-pip build/bom
	$(TOOLS)/pip --python build/bom/bin/python install --quiet --disable-pip-version-check --no-index \
		--find-links build/bundle/$$(uname -m)/wheels pg-penstock
	$(TOOLS)/cyclonedx-py environment --output-reproducible --spec-version 1.6 --output-file build/bom/found.json build/bom
	$(TOOLS)/python .ci/bom.py build/bom build/bundle/*/wheels <build/bom/found.json >"$$(echo dist/*.tar.gz | sed 's/.tar.gz//').cdx.json"

# All files of a release, from a clean clone: make release VERSION=1.2.3 (CONTRIBUTING.md)
release: $(DEV)
	$(BIN)/python -m benchmarks old README.md
	PYTHON=$(PYTHON) .ci/release $(VERSION)

# Searches for inputs for which a fast path of the Rust core differs from a slow one (rust/src/proofs.rs), and for columnar
# files that end the process or take more than 2 GB (rust/src/columnar/proofs.rs), FUZZ_S seconds for each target of a most
# length, and keeps those that reach more code. A sanitizer would find little in safe Rust, and need the nightly toolchain.
FUZZ_S ?= 60
FUZZ := PATH="$(CURDIR)/$(TOOLS):$$PATH" cargo fuzz
$(TOOLS)/cargo-fuzz:
	cargo install --quiet --locked --root build/tools cargo-fuzz

fuzz: $(TOOLS)/cargo-fuzz
	cd rust && for target in cutter:512 fields:512 encoder:512 footer:4096 page:4096 arrow:8192; do \
		$(FUZZ) run --sanitizer none $${target%:*} -- -max_total_time=$(FUZZ_S) -max_len=$${target#*:} -dict=fuzz/formats.dict && \
		$(FUZZ) cmin --sanitizer none $${target%:*} -- -max_len=$${target#*:} -set_cover_merge=1 || exit; \
	done

clean:
	rm -rf $(VENV) rust/target rust/fuzz/target build dist
