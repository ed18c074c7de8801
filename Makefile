# `make test` and `make demo` do their own set-up: a fresh clone needs Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# One thread per process: the matrices here are small, and processes run side by side.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: test test-slow test-matrix test-foundation lint docs bench bench-peers demo clean setup

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# A wheel in empty environments: the oldest and the newest versions that are supported.
test-matrix: $(READY)
	$(BIN)/python tests/matrix.py

# Foundation models, in an environment of their own because of PyTorch.
test-foundation: .venv-foundation/.ready
	.venv-foundation/bin/python -m pytest tests/engines/test_batched.py \
	  tests/potential/test_foundation_mean.py tests/search/test_foundation_search.py \
	  tests/cli/test_cli_judge.py

.venv-foundation/.ready: pyproject.toml
	test -x .venv-foundation/bin/python || $(PYTHON) -m venv .venv-foundation
	.venv-foundation/bin/python -m pip install --quiet --upgrade pip
	.venv-foundation/bin/python -m pip install --quiet --editable '.[dev,foundation]'
	@touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site: docs/_build/html/index.html, which any browser opens from the disk. Warnings are errors.
docs: .venv/.docs
	rm -rf docs/_build
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "Written: docs/_build/html/index.html"

.venv/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

bench: $(READY)
	for name in descriptor gp potential relax_evaluations search_iteration; do \
	  $(BIN)/python benchmarks/$$name.py || exit 1; done

# Side by side with AGOX, which lives in an environment of its own.
bench-peers: $(READY) .venv-peers/.ready
	$(BIN)/python benchmarks/peers/run.py

.venv-peers/.ready: benchmarks/peers/constraints.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --upgrade pip
	.venv-peers/bin/python -m pip install --quiet --constraint $< agox ase dscribe ray
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "nugget needs Python >= 3.11; try: make PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv .venv-peers .venv-matrix .venv-foundation docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
