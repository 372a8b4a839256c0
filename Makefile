# Every target brings what it needs: uv, .venv, Java, the S3 server, the s3a jars (see scripts/setup).
.DEFAULT_GOAL := help
.PHONY: help setup sbom constraints dist demo test test-fast coverage soak kubernetes matrix chaos receivers lint types docs site clean

# Without bytecode each process of the tests compiles all their modules anew: a third of the time until its first test runs.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
REAL := e2e or spark or s3
BIN := .venv/bin
TIMES := .cache/times.xml
SETUP := $(PYTHON) -m scripts.setup
# $(call flag,name,VALUE): --name 'VALUE' where VALUE is set; TABLES and KEEP are switches.
flag = $(if $(2),--$(1) '$(2)')
demo_flags = $(call flag,flights,$(FLIGHTS)) $(call flag,epochs,$(EPOCHS)) $(call flag,kill,$(KILL)) \
	$(call flag,storage,$(STORAGE)) $(call flag,session,$(SESSION)) $(if $(filter-out 0,$(TABLES)),--tables) $(if $(filter-out 0,$(KEEP)),--keep)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything the other targets need, once
	@$(SETUP)

sbom: ## Write the list of every locked package and its checksums to .cache/sbom.cdx.json (CycloneDX)
	@$(SETUP) venv
	@$(BIN)/python -m scripts.sbom

constraints: ## Write the versions that this was tested with, and the extra's PySpark, to .cache/constraints.txt, for pip install -c
	@$(SETUP) venv
	@$(BIN)/python -m scripts.constraints

dist: ## Make what a release has, in .cache/dist: wheel, source archive, constraints file, list of packages
	@$(SETUP) venv
	@$(BIN)/python -m scripts.dist

demo: ## Run the pipeline, kill it, watch it recover: [FLIGHTS=path] [EPOCHS=n] [KILL=stage@epoch|server@epoch|none] [SESSION=submit] [STORAGE=file|s3] [TABLES=1] [KEEP=1]
	@$(SETUP) venv java classes $(if $(filter s3,$(STORAGE)),s3server jars)
	@$(BIN)/python -m scripts.demo $(demo_flags)

test: ## Run every test, on real Airflow, Spark and S3; say how long each lane took, and the ten slowest tests
	@$(SETUP)
	@rm -f $(TIMES); status=0; \
	$(BIN)/pytest -n 4 --dist loadscope --junitxml=$(TIMES) || status=$$?; \
	$(BIN)/python -m tests.times $(TIMES); \
	exit $$status

test-fast: ## Run what needs no Airflow, Spark, S3 server, browser or database; no simulation, no crash points, nothing marked large (two minutes)
	@$(SETUP) venv lineage launchers
	@$(BIN)/pytest -n logical --dist worksteal --ignore tests/real -m "not ($(REAL) or simulation or large)"

coverage: ## Run test-fast and say which lines and branches of the package it takes; fails below the floor in pyproject.toml
	@$(SETUP) venv lineage launchers
	@$(BIN)/pytest -n logical --dist worksteal --ignore tests/real -m "not ($(REAL) or simulation or large)" --cov --cov-report=term:skip-covered

soak: ## Run the cases that make test leaves out (all crash points and chaos, on the emulators of Google and Azure too), count work up to 1,000 retained epochs, race for 500 checkpoints on each server of buckets, draw 50 histories of states on Spark and 200 examples of each property, then simulate seeds until one fails: [FROM=0] [TO=5000]
	@$(SETUP) $(if $(FROM),venv s3server)
	@$(if $(FROM),,$(BIN)/pytest -n 3 --dist loadscope --soak -m soak)
	@$(if $(FROM),,$(BIN)/pytest -n 3 --dist loadscope --soak -m "not soak" tests/unit)
	@$(if $(FROM),,CAIRN_RETAINED=250 $(BIN)/pytest -n0 -q tests/unit/checkpoint/test_growth.py -k retained)
	@$(if $(FROM),,CAIRN_CHECKPOINTS=500 $(BIN)/pytest -n0 -q --soak tests/protocol/bucket_races)
	@$(if $(FROM),,CAIRN_EXAMPLES=50 $(BIN)/pytest -n0 -q --soak tests/real/spark/test_histories.py)
	@$(BIN)/python -m tests.protocol.simulation.simulate $(or $(FROM),0) $(or $(TO),5000)

kubernetes: ## Strike drivers, nodes, submissions and the API server on a real API server of Kubernetes with RBAC, built once (7 minutes of a core)
	@$(SETUP) venv java launchers kubernetes
	@$(BIN)/pytest -n0 --kubernetes -m kubernetes tests/real/kubernetes tests/bench/test_epoch.py

matrix: ## Run a keyed pipeline with a kill, and all that an epoch can keep, on each combination of versions, each in an environment of its own: [CELLS=name]
	@$(SETUP) venv java
	@$(BIN)/python -m tests.matrix $(CELLS)

chaos: ## Strike real processes and a real Airflow, and audit what is left: [SEED=1] [RUNS=300] [STORE=s3|gcs|azure] [ROUNDS=10] [FIRST=1]
	@$(SETUP) venv java s3server jars $(if $(STORE),gcsserver azurite)
	@$(BIN)/python -m tests.chaos $(call flag,seed,$(SEED)) $(call flag,runs,$(RUNS)) $(call flag,rounds,$(ROUNDS)) \
	    $(call flag,first,$(FIRST)) $(call flag,store,$(STORE))

receivers: ## Read the metrics of a failed-over epoch back from a real statsd_exporter and Prometheus; evaluate dashboard and rules
	@$(SETUP) venv java classes receivers
	@$(BIN)/python -m tests.receivers

lint: ## Check style, docstrings and banned calls
	@$(SETUP) venv
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: ## Check types (strict for storage, checkpoint and spark)
	@$(SETUP) venv
	@$(BIN)/python -m scripts.check_types

docs: ## Check links, anchors, code and generated parts of the documentation
	@$(SETUP) venv
	@$(BIN)/python -m scripts.check_docs
	@$(BIN)/python -m scripts.rules
	@$(BIN)/python -m scripts.reference --json > /dev/null
	@$(BIN)/python -m scripts.schema

site: ## Build the documentation as a site with search, in .cache/site/html: [SOURCE=address of the repository's files]
	@$(SETUP) venv site
	@.cache/site/venv/bin/python -m scripts.site $(call flag,source,$(SOURCE))

clean: ## Remove what make made
	@$(PYTHON) -m scripts.clean
