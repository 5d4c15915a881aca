# Everything happens in .venv; the first target that needs it makes it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.docs
CLUSTER_STAMP := .venv/.cluster
SPARK_STAMP := .venv/.spark
STUDIO_STAMP := .venv/.studio
PACKAGE_STAMP := .venv/.package
OLDEST_PYTHON ?= python3.11
NEWEST_PYTHON ?= python3.13
# Tests with targets of their own.
OTHERS := slow or audit or docs or cluster or tracking or spark or package or studio
# Modules are compiled once, not in each of the hundred processes of a run, wherever the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=
# Extras in the wheelhouse and so in the image, for example: make wheelhouse EXTRAS=pandas,excel
EXTRAS ?=

CLIENT_FOLDERS := audit benchmark graphs studio
CLIENTS := $(CLIENT_FOLDERS:%=tests/%) $(CLIENT_FOLDERS:%=src/understudy/%) tests/benchmarks $(wildcard tests/test_papers_*.py tests/test_utility.py)

.PHONY: setup demo test test-clients long-test check docs docs-test audit-test cluster-test spark-test studio-test package-test wheelhouse fuzz notebooks papers bench slow coverage matrix clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade --constraint constraints.txt pip setuptools
	$(BIN)/pip install --quiet --no-build-isolation --constraint constraints.txt --editable . --group dev
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --group docs
	touch $(DOCS_STAMP)

$(CLUSTER_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --group cluster
	touch $(CLUSTER_STAMP)

$(SPARK_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --group spark
	touch $(SPARK_STAMP)

$(PACKAGE_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --group package
	touch $(PACKAGE_STAMP)

$(STUDIO_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --group studio
	touch $(STUDIO_STAMP)

demo: $(STAMP)
	$(BIN)/understudy demo

test: $(STAMP)
	$(BIN)/python -m pytest -q -n auto --dist worksteal $(CLIENTS:%=--ignore=%)

# Tests and docstring examples of what stands on the public names alone: audits, benchmarks, papers, graphs, the studio.
test-clients: $(STAMP)
	$(BIN)/python -m pytest -q -n auto --dist worksteal $(CLIENTS)

# What takes longer to compile than to run; among it the golden results and the contract of all networks. And all
# properties, each on many more examples (tests/examples.py).
long-test: $(STAMP)
	UNDERSTUDY_EXAMPLES=thorough $(BIN)/python -m pytest -q -n auto --dist worksteal -m "(long or hypothesis) and not ($(OTHERS))" --durations 10

slow: $(STAMP)
	$(BIN)/python -m pytest -q -m slow

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site, without network; every warning is an error, a broken link among them. Notebooks are run.
docs: $(DOCS_STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs -d build/doctrees . site

docs-test: $(STAMP)
	$(BIN)/python -m pytest -q -n auto -m docs tests/docs tests/benchmarks --durations 10

# Runs the notebooks again, even those that have not changed; `make docs` then shows these results.
notebooks: $(DOCS_STAMP)
	rm -rf build/notebooks
	$(BIN)/python -m sphinx -q -W --keep-going -E -b dummy -c docs -d build/doctrees . build/dummy

# Lines and branches that `make test`, `make long-test` and `make spark-test` run, by folder; fails if privacy/ or run/ is below
# 98% of lines.
coverage: $(STAMP) $(SPARK_STAMP)
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest -q -m spark tests/privacy/rows/test_spark.py
	$(BIN)/python -m coverage run -m pytest -q -n auto --dist loadfile -m "not ($(OTHERS))"
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o build/coverage/coverage.json
	$(BIN)/python distribution/coverage_table.py build/coverage/coverage.json

# A quick part of the tests, with the oldest and the newest Python and dependencies that are supported.
matrix: $(STAMP)
	$(BIN)/python distribution/matrix.py oldest --python $(OLDEST_PYTHON)
	$(BIN)/python distribution/matrix.py newest --python $(NEWEST_PYTHON)

# Planted defects that take long to find (docs/defects.md).
audit-test: $(STAMP)
	$(BIN)/python -m pytest -q -m audit tests/audit --durations 5

# A local Ray cluster of two workers, and a local MLflow server.
cluster-test: $(CLUSTER_STAMP)
	$(BIN)/python -m pytest -q -m "cluster or tracking" tests/benchmark --durations 5

# A local Spark of two cores; without Java the tests are skipped.
spark-test: $(SPARK_STAMP)
	$(BIN)/python -m pytest -q -m spark tests/privacy/rows/test_spark.py -rs --durations 5

# The wheel and the source archive, and the wheel in an empty environment without a network.
package-test: $(PACKAGE_STAMP)
	$(BIN)/python -m pytest -q -m package tests/test_distribution.py --durations 5

# 10,000 damaged files; the default suite has 200.
fuzz: $(STAMP)
	UNDERSTUDY_FUZZ=10000 $(BIN)/python -m pytest -q -n auto tests/fuzz --durations 5

# Everything that an installation without a network needs, in wheelhouse/ (docs/howto/closed_environments.md).
wheelhouse: $(STAMP)
	rm -rf wheelhouse
	$(BIN)/python distribution/wheelhouse.py wheelhouse --extras "$(EXTRAS)"

# The web page in an installed Chromium; without one the tests are skipped.
studio-test: $(STUDIO_STAMP)
	$(BIN)/python -m pytest -q -m studio tests/studio -rs --durations 5

# A small version of every script of docs/papers; those on public tables need UNDERSTUDY_DATA.
papers: $(STAMP)
	$(BIN)/python benchmarks/papers/pages.py --check
	$(BIN)/python benchmarks/papers/smoke.py

# Needs no data. Run it again to resume; the other suites: understudy benchmark suites.
bench: $(STAMP)
	$(BIN)/understudy benchmark run smoke
	$(BIN)/understudy benchmark report benchmark-results/smoke -o benchmark-results/smoke.html --force

clean:
	rm -rf .venv site build jupyter_execute .jax_cache .mypy_cache .ruff_cache .pytest_cache
