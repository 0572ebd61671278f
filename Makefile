# Everything a developer or a first-time user types. `make bench` and `make test` set up what they need.

VENV  ?= .venv
LIGHT ?= .venv-light
ACTIONS := .actions
OLDEST := .venv-oldest
OLDEST_PYTHON ?= python3.12
PY    := $(VENV)/bin/python
HOME_OF_RUNS := .ci-bench
JOBS  ?= 3
WORKERS := --numprocesses $(JOBS) --no-loadscope-reorder --max-worker-restart 0

.DEFAULT_GOAL := help
.PHONY: help bench test test-all test-rest test-oldest gpu-tests faults guards lint format docs golden pictures data release-check clean

help:
	@echo "make bench    gate this checkout against its base commit with the embedded default, print the pull-request comment"
	@echo "make test     run the tests that are quick: twelve minutes, with what they need installed (no GPU, no network)"
	@echo "make test-all run all tests; make test-rest those of tests/in_ci.txt, which make test leaves out"
	@echo "make test-oldest run the quick tests with the oldest supported torch and transformers (constraints-oldest.txt), in Python 3.12"
	@echo "make gpu-tests run the tests of a card in this Python, tier by tier, ten minutes each (TIER=clock, PYTHON=python3.12)"
	@echo "make faults   run the tests of docs/internals/reliability.md, fault by fault"
	@echo "make guards   take each guard of the trust boundary out of the code in turn: its test has to fail"
	@echo "make lint     ruff and mypy"
	@echo "make format   let ruff format and fix"
	@echo "make docs     build the docs as a site into site/; a broken link, or a page that is in no list, fails"
	@echo "make golden   rewrite the golden files of the reports, on purpose"
	@echo "make pictures measure and render the pictures of the README again, a quarter of an hour"
	@echo "make release-check do all of a release but the publishing, against an index and a registry on the loopback"
	@echo "make data     regenerate the embedded reviews"
	@echo "make clean    remove environments, caches and saved runs"

bench: $(VENV)/.ready
	$(VENV)/bin/ci-bench gate --config quickstart --baseline paired --output $(HOME_OF_RUNS)/results --format comment

test: EXTENT := -m "not thorough"
test-rest: EXTENT := -m "thorough and not nightly"
test test-all test-rest: $(VENV)/.ready $(LIGHT)/.ready $(ACTIONS)/.ready
	tools/browser.sh
	CI_BENCH_LIGHT_PYTHON=$(CURDIR)/$(LIGHT)/bin/python $(PY) tools/run_tests.py $(WORKERS) $(EXTENT) $(PYTEST_ARGS)

# Its own environment, in Python 3.12 unless OLDEST_PYTHON names another one.
test-oldest: $(OLDEST)/.ready $(LIGHT)/.ready $(ACTIONS)/.ready
	CI_BENCH_LIGHT_PYTHON=$(CURDIR)/$(LIGHT)/bin/python $(OLDEST)/bin/python tools/run_tests.py $(WORKERS) -m "not thorough" $(PYTEST_ARGS)

# In the Python and torch of the machine, without a network: nothing is built or installed. TIER=clock for a tier, SIMULATED=1 without a card.
PYTHON ?= $(if $(wildcard $(PY)),$(PY),python3)
gpu-tests:
	$(PYTHON) tools/gpu_tests.py $(if $(SIMULATED),--simulated) $(TIER) -- $(PYTEST_ARGS)

faults: $(VENV)/.ready
	$(PY) -m pytest $$($(PY) tools/render_reliability.py --tests) $(WORKERS) $(PYTEST_ARGS)

guards: $(VENV)/.ready $(ACTIONS)/.ready
	$(PY) -m benchmarks.guards $(if $(ONLY),--only "$(ONLY)")

lint: $(VENV)/.ready
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/.ready
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# Anew each time: what an earlier build complained about would not be read again.
docs: $(VENV)/.ready
	rm -rf site
	$(PY) -m sphinx --quiet --fail-on-warning -c docs . site

golden: $(VENV)/.ready
	CI_BENCH_UPDATE_GOLDEN=1 $(PY) -m pytest tests/report tests/history/test_trend_page.py
	git diff --stat -- tests/golden

pictures: $(VENV)/.ready
	tools/browser.sh
	$(PY) tools/pictures.py measure $(HOME_OF_RUNS)/pictured
	$(PY) tools/pictures.py render $(HOME_OF_RUNS)/pictured

data: $(VENV)/.ready
	$(PY) -m ci_bench.suites.training_loss.data.generate

# What the packages need comes from pip's own index, in the versions of constraints.txt; the image wants a Docker Engine, or root on Debian or Ubuntu.
release-check: $(VENV)/.ready $(ACTIONS)/.ready
	rm -rf dist
	$(PY) tools/release_packages.py build dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PY) tools/release_packages.py try dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(PY) tools/first_verdict.py dist
	$(PY) tools/release_image.py

# The engine and the development tools, exactly as pinned.
$(VENV)/.ready: pyproject.toml constraints.txt tools/setup.sh
	tools/setup.sh $(VENV) engine dev

# The oldest supported versions (constraints-oldest.txt). On a machine without a GPU, pip may have to download a build with CUDA: gigabytes.
$(OLDEST)/.ready: pyproject.toml constraints.txt constraints-oldest.txt tools/setup.sh
	OLDEST=1 PYTHON=$(OLDEST_PYTHON) tools/setup.sh $(OLDEST) engine dev

# The package without the engine: what comparing and reporting must get by with.
$(LIGHT)/.ready: pyproject.toml constraints.txt tools/setup.sh
	tools/setup.sh $(LIGHT)

# GitHub's own parser and evaluator of expressions, where there is Node.js.
$(ACTIONS)/.ready: $(wildcard tools/actions/*) tools/setup_actions.sh
	tools/setup_actions.sh $(ACTIONS)

clean:
	rm -rf $(VENV) $(OLDEST) $(LIGHT) $(ACTIONS) $(HOME_OF_RUNS) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build site
