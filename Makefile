# `make run` and `make test` need make and python3 (3.11 or newer, with venv); all else they install into .venv.

PYTHON ?= python3
SCENARIO ?= scenarios/qwen3_8b_decode.yaml
ARGS ?=
PORT ?= 8501
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
# A stamp is newer than pyproject.toml while its part of the environment is up to date: core runs, app shows, dev tests.
CORE := $(VENV)/core.stamp
APP := $(VENV)/app.stamp
DEV := $(VENV)/dev.stamp

PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
TOO_OLD = Python 3.11 or newer is needed and $(PYTHON) is not that; name one: make PYTHON=/path/to/python3.11
# An environment is made again when its Python is gone or too old, and when it was copied or moved here: it would run the
# code of the place that it came from.
STALE := $(shell test "$$(cat $(VENV)/made_in 2>/dev/null)" = "$(CURDIR)" && $(BIN)/python -c '$(NEW_ENOUGH)' 2>/dev/null || echo stale)

# The NPU backend with no NPU has an environment of its own; torch_npu has wheels for these systems only.
NPU_VENV := .venv-npu
NPU := $(NPU_VENV)/stamp
NPU_DRY := tests/npu_dry
NPU_PYTEST := $(NPU_VENV)/bin/python -m pytest -c $(NPU_DRY)/pytest.ini --rootdir . --confcutdir $(NPU_DRY) -n $(JOBS) --dist loadfile
HAS_TORCH_NPU := $(shell uname -sm | grep -Eq '^Linux (x86_64|aarch64)$$' && echo yes)

# The tests that `make quick` runs: the rules of the house, and one path from a scenario file through passes, kernels and steps to the errors.
QUICK := tests/test_imports.py tests/test_rooms.py tests/test_docs.py tests/test_words.py tests/test_style.py tests/scenarios/test_checks.py \
	tests/scenarios/test_passes.py tests/scenarios/test_lowering.py tests/scenarios/test_loader.py tests/scenarios/ops \
	tests/sim/test_kernel.py tests/sim/test_tiles.py tests/sim/step/test_engine.py tests/sim/step/test_host.py tests/sim/step/test_sharing.py \
	tests/sim/step/test_ranks.py tests/sim/accuracy/test_reference.py tests/sim/accuracy/test_score.py tests/sim/accuracy/test_steps.py tests/sim/predict/test_uncertainty.py tests/cli/test_list.py tests/cli/test_bad_input.py tests/cli/test_bad_results.py

.PHONY: help env run app quick test slow check npu format bench faults properties study schema clean always

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(CORE) ## predict a scenario: SCENARIO=file.yaml ARGS="--set workload.batch=16"
	$(BIN)/whatif run $(SCENARIO) $(ARGS)

app: $(APP) ## the what-if lab in your browser: PORT=8501
	$(BIN)/whatif app --port $(PORT)

# mypy reads what did not change from its cache.
quick: $(DEV) ## lint, types of what changed, and the tests that matter most: under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n $(JOBS) $(QUICK)

test: check npu ## lint, types and the tests: under 6 minutes on 2 idle cores
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

slow: $(DEV) $(if $(HAS_TORCH_NPU),$(NPU)) ## the tests that take seconds each, which `make test` leaves out and CI runs: browser, ranks, compilers, refits
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m 'slow and not study'
	$(if $(HAS_TORCH_NPU),$(NPU_PYTEST) -m 'slow and not study' $(NPU_DRY))

env: $(DEV) ## make the environment of the tests and stop there

check: $(DEV) ## lint and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

ifeq ($(HAS_TORCH_NPU),yes)
npu: $(NPU) ## test the NPU backend with no NPU, against the real torch_npu
	$(NPU_PYTEST) $(NPU_DRY)
else
npu:
	@echo "make npu: skipped: there is no torch_npu wheel for $$(uname -sm)"
endif

format: $(DEV) ## sort imports and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) ## time and memory against their bounds: each script of benchmarks/
	@set -e; for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

properties: $(DEV) ## all examples of the properties, four times as many as `make test` tries: 10 minutes
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup tests/properties tests/scenarios tests/sim/predict tests/device/test_combinations.py

# ARGS="--count 10 --only sim/predict" for some of them.
faults: $(DEV) ## seed some 50 faults one by one in a copy, and list those that no test notices: half an hour
	$(BIN)/python tests/faults.py $(ARGS)

study: $(DEV) ## calibrate this CPU, predict what that never ran, measure it: writes docs/study_cpu.md; 10 minutes or more
	$(BIN)/python benchmarks/study/cpu.py --out docs/study_cpu.md

schema: $(CORE) ## write scenarios/schema.json, from which editors complete
	$(BIN)/whatif schema > $(VENV)/schema.json
	mv $(VENV)/schema.json scenarios/schema.json

clean: ## remove the environment and everything built
	rm -rf $(VENV) $(NPU_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define make_venv
	$(if $(shell $(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null && echo yes),,$(error $(TOO_OLD)))
	@$(PYTHON) -m venv --clear $(VENV)
	@pwd -P > $(VENV)/made_in
endef

$(CORE): pyproject.toml $(if $(STALE),always)
	@echo "Installing the project into $(VENV): some seconds, the first time ..."
	$(if $(STALE),$(make_venv))
	@$(PIP_INSTALL) -e .
	@touch $@

$(APP): pyproject.toml $(if $(STALE),always)
	@echo "Installing the project and its lab into $(VENV): some seconds, the first time ..."
	$(if $(STALE),$(make_venv))
	@$(PIP_INSTALL) -e '.[app]'
	@touch $(CORE) $@

$(DEV): pyproject.toml $(if $(STALE),always)
	@echo "Installing the project and the tools of its tests into $(VENV): under a minute, the first time ..."
	$(if $(STALE),$(make_venv))
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $(CORE) $(APP) $@

$(NPU): $(NPU_DRY)/requirements.txt
	@echo "Installing torch_npu and what its tests need into $(NPU_VENV): a minute or two, the first time ..."
	@$(PYTHON) -m venv --clear $(NPU_VENV)
	@$(NPU_VENV)/bin/python -m pip install -qq --disable-pip-version-check -r $(NPU_DRY)/requirements.txt
	@touch $@
