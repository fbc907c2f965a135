# Every target sets up what it needs in $(VENV); a fresh clone needs nothing but make and Python 3.10+ with venv.
# TORCH is what pip is told to install first, so a CPU build can be chosen: README.md, "Two commands".

PYTHON ?= python3
TORCH  ?= torch
VENV   ?= .venv
BIN    := $(VENV)/bin
DEMO   ?= results/demo
OLDEST ?= .venv-oldest

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-oldest test-gpu check fmt bench tiny-siblings wheel clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "s2d2 needs Python 3.10 or newer; $(PYTHON) is older: set PYTHON=python3.x"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.torch: | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(TORCH)
	@touch $@

$(VENV)/.run: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run  ## sweep decoder settings on the shipped model: Pareto table and plot
	$(BIN)/s2d2 sweep pareto_tiny --results $(DEMO) --out $(DEMO)/report

test: $(VENV)/.dev  ## the everyday tests
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-all: $(VENV)/.dev  ## the slow tests too
	$(BIN)/python -m pytest -m "not gpu"

SMOKE := tests/test_cli.py tests/test_config.py tests/models/test_loading.py tests/decode/test_golden_sdar.py \
         tests/runs/test_report.py tests/tasks/test_data.py

# A venv of its own; old packages use what newer ones beside them call deprecated, so warnings are no errors there.
test-oldest:  ## a part of the tests with the oldest versions that pyproject.toml accepts; PYTHON=python3.10
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet -c tests/oldest.txt $(TORCH)
	$(OLDEST)/bin/python -m pip install --quiet -c tests/oldest.txt --editable . pytest hypothesis
	$(OLDEST)/bin/python -m pytest -W default -m "not slow and not gpu" $(SMOKE)

test-gpu: $(VENV)/.dev  ## what needs a CUDA device
	$(BIN)/python -m pytest -m gpu

check: $(VENV)/.dev  ## format, lint, types, direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_imports.py

fmt: $(VENV)/.dev  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.run  ## throughput of batches, side by side
	$(BIN)/python scripts/bench.py batch

# Each run continues from its last checkpoint. Needs torch 2.9 or newer.
tiny-siblings: $(VENV)/.run  ## train tiny's siblings, of other formats and size (hours)
	$(BIN)/python scripts/train_tiny.py --format fast_dllm_v2 --out runs/tiny-fast --steps2 3000 --steps3 1500 --steps4 1600
	$(BIN)/python scripts/tiny_export.py runs/tiny-fast/stage4.pt --name tiny-fast
	$(BIN)/python scripts/train_tiny.py --format llada2 --out runs/tiny-llada2 --steps2 2200 --steps3 900 --steps4 500
	$(BIN)/python scripts/tiny_export.py runs/tiny-llada2/stage4.pt --name tiny-llada2
	$(BIN)/python scripts/train_tiny.py --size draft --out runs/tiny-draft --steps2 2500 --steps3 800 --steps4 400
	$(BIN)/python scripts/tiny_export.py runs/tiny-draft/stage4.pt --name tiny-draft

wheel: $(VENV)/.dev  ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## remove everything that was made, results excepted
	rm -rf $(VENV) $(OLDEST) dist build .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
