# Everything happens in .venv; the first target that needs it makes it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test check bench slow clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade --constraint constraints.txt pip setuptools
	$(BIN)/pip install --quiet --no-build-isolation --constraint constraints.txt --editable . --group dev
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/understudy demo

test: $(STAMP)
	$(BIN)/python -m pytest -q -n auto --dist loadfile

slow: $(STAMP)
	$(BIN)/python -m pytest -q -m slow

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/marginals.py $(if $(SCORER),--scorer $(SCORER))

clean:
	rm -rf .venv .jax_cache .mypy_cache .ruff_cache .pytest_cache
