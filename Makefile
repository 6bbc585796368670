# One virtual environment, .venv, serves every target. Each target installs only what it needs, once: a stamp in .venv/stamps
# says that it is there, and is renewed when pyproject.toml or constraints.txt changes.
#
#   PYTHON=python3.12   the interpreter to build .venv with (default: the first of 3.11 to 3.13 that is found)
#   ARGS="…"            handed on to the command of the target: make train ARGS="--seed 1", make test ARGS="-k replay"
#   ROW=…               one row of `make learn`
#   WORKERS=2           processes that run tests side by side

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
INSTALL = $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
LOWEST_INSTALL = $(LOWEST)/bin/python -m pip install -qq --disable-pip-version-check -c constraints-lowest.txt
PINS := pyproject.toml constraints.txt
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
DOCS_TESTS := $(addprefix tests/test_,docs.py site.py readme.py phrases.py distribution.py)
LOWEST := .venv-lowest
LOWEST_PYTHON ?= python3.11
LOWEST_TESTS := $(addprefix tests/,test_ops.py test_spaces.py reports/test_onnx_export.py backends envs functional networks replay tuning)
CANDIDATES := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python)

# One thread a process: on networks this small a second one gains little, and on a busy machine it makes every operation
# wait for a core (measured: up to 100 times slower). The rest silences what libraries print on being imported.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export NUMBA_NUM_THREADS := 1
export TF_CPP_MIN_LOG_LEVEL := 3
export PYGAME_HIDE_SUPPORT_PROMPT := 1
export NO_MKDOCS_2_WARNING := 1

.NOTPARALLEL: # two pips in one environment would break it
.PHONY: help train test test-docs test-fast test-all test-lowest examples bench learn dist docs docs-serve notebooks lint format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

train: $(STAMPS)/jax ## the main job: PPO learns CartPole-v1, on Keras with JAX
	@$(BIN)/tandem train ppo CartPole-v1 --framework jax $(ARGS)

test: $(STAMPS)/test $(STAMPS)/browser lint ## lint, types and the tests of the library, on every backend
	@$(PYTEST) -m "not learns and not thorough" $(addprefix --ignore=,$(DOCS_TESTS)) $(ARGS)

test-docs: $(STAMPS)/test $(STAMPS)/docs $(STAMPS)/browser ## the tests of the documentation, the site and the wheel
	@$(PYTEST) -m "not learns and not thorough" $(DOCS_TESTS) $(ARGS)

test-fast: $(STAMPS)/test ## the tests that take seconds
	@$(PYTEST) -m "not slow and not learns and not thorough" $(ARGS)

test-all: $(STAMPS)/test $(STAMPS)/docs $(STAMPS)/browser lint ## both, on every backend and variant (some forty minutes)
	@$(PYTEST) -m "not learns" $(ARGS)

test-lowest: $(LOWEST)/stamp ## the self-test and some tests with the lowest versions allowed, in .venv-lowest
	@$(LOWEST)/bin/python -m tandem.testing
	@$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not learns and not thorough" $(LOWEST_TESTS) $(ARGS)

examples: $(STAMPS)/test ## every example to its full score (some five minutes)
	@$(PYTEST) -m learns $(ARGS)

bench: $(STAMPS)/peers ## speed beside other libraries, into benchmarks/results
	@$(BIN)/python -m benchmarks.bench $(ARGS)

learn: $(STAMPS)/engines ## scores over several seeds, into benchmarks/results (ROW=…; without one: what is missing)
	@$(BIN)/python -m benchmarks.learn $(if $(ROW),--row '$(ROW)') $(ARGS)

docs: $(STAMPS)/docs ## the documentation as a site that needs no network, into site/
	@$(BIN)/python -m mkdocs build --strict $(ARGS)

docs-serve: $(STAMPS)/docs ## serve the documentation, and build what changes anew
	@$(BIN)/python -m mkdocs serve $(ARGS)

notebooks: $(STAMPS)/venv ## the tutorials as notebooks, from their pages
	@$(BIN)/python docs/notebooks.py

dist: $(STAMPS)/dist ## wheel and sdist into dist/, and what is in them is checked
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist . >.dist.log 2>&1 || { cat .dist.log; rm .dist.log; exit 1; }
	@rm .dist.log
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python -m tests.distribution dist

lint: $(STAMPS)/lint ## format and rules (ruff), types (mypy)
	@$(BIN)/ruff format --check --quiet . || { echo "Fix: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

format: $(STAMPS)/lint ## let ruff mend what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove .venv, what was built, and the tools' caches
	rm -rf $(VENV) $(LOWEST) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

# --- what is installed -------------------------------------------------------------------------------------------------

$(STAMPS)/venv:
	@for python in $(CANDIDATES); do \
	    "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || continue; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
	        echo "$$python has no ensurepip, which .venv needs."; \
	        echo "Fix: install it (Debian and Ubuntu: apt install python3-venv), then run make again."; exit 1; }; \
	    echo "Making $(VENV) with $$python ($$("$$python" -V))"; \
	    "$$python" -m venv $(VENV) && mkdir -p $(STAMPS) && touch $@; exit; \
	done; \
	echo "No Python 3.11, 3.12 or 3.13 found (looked for: $(CANDIDATES))."; \
	echo "Fix: install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1

$(STAMPS)/lint: $(STAMPS)/venv $(PINS)
	@echo "Installing ruff and mypy"
	@$(INSTALL) ruff mypy numpy
	@touch $@

$(STAMPS)/jax: $(STAMPS)/venv $(PINS)
	@echo "Installing tandem with Keras on JAX (under a minute)"
	@$(INSTALL) -e '.[jax]'
	@touch $@

$(STAMPS)/dist: $(STAMPS)/venv $(PINS)
	@echo "Installing what builds and checks a wheel"
	@$(INSTALL) build hatchling twine
	@touch $@

# torch by itself and first, so that nothing that comes later can choose another build of it.
$(STAMPS)/torch: $(STAMPS)/venv $(PINS)
	@echo "Installing torch"
	@$(INSTALL) torch
	@touch $@

$(STAMPS)/engines: $(STAMPS)/torch
	@echo "Installing tandem with PyTorch, TensorFlow, JAX, Box2D, MuJoCo, robotics, Atari and PettingZoo (a minute or two)"
	@$(INSTALL) -e '.[torch,tensorflow-cpu,jax,box2d,robotics,atari,marl]'
	@touch $@

$(STAMPS)/test: $(STAMPS)/engines
	@echo "Installing the tools that test, Ray, Optuna, and what shares runs and data"
	@$(INSTALL) -e '.[dev,onnx,ray,sweep,hub,data]'
	@touch $@

# No framework is among it: the reference is read from the sources.
$(STAMPS)/docs: $(STAMPS)/venv $(PINS)
	@echo "Installing the tools that build the documentation"
	@$(INSTALL) -e '.[docs]'
	@touch $@

# Debian's browser, for the test that looks at a report. Nothing fails without it: that test is skipped then.
$(STAMPS)/browser: $(STAMPS)/venv
	@for browser in chromium chromium-browser google-chrome; do \
	    command -v $$browser >/dev/null && exit; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing chromium"; \
	    { timeout 120 apt-get update && timeout 600 apt-get install -y --no-install-recommends chromium; } \
	        >/dev/null 2>&1 </dev/null || echo "It could not be installed: the test that needs it is skipped."; \
	else echo "There is no chromium: the test that needs it is skipped."; fi
	@touch $@

# An environment of its own, since nothing in it may be newer than it has to be. torch first, as above.
$(LOWEST)/stamp: pyproject.toml constraints-lowest.txt
	@echo "Installing the lowest versions into $(LOWEST) (some minutes)"
	@rm -rf $(LOWEST)
	@$(LOWEST_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	    echo "$(LOWEST_PYTHON) is no Python 3.11, which the lowest versions are for."; \
	    echo "Fix: name one: make test-lowest LOWEST_PYTHON=/path/to/python3.11"; exit 1; }
	@$(LOWEST_PYTHON) -m venv $(LOWEST)
	@$(LOWEST_INSTALL) torch
	@$(LOWEST_INSTALL) -e '.[torch,tensorflow-cpu,jax,functional,atari,box2d,robotics,marl,ray,onnx,sweep]'
	@$(LOWEST_INSTALL) pytest pytest-xdist pytest-timeout filelock hypothesis
	@touch $@

$(STAMPS)/peers: $(STAMPS)/engines benchmarks/peers.txt
	@echo "Installing the libraries to compare with"
	@$(INSTALL) -r benchmarks/peers.txt
	@touch $@
