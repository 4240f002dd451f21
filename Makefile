# Each target that needs the environment makes it: `make test` is enough on a
# fresh machine with Python 3.11 (or later) and make.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
LOCK := lab/tools/requirements.txt
# Spark and what stands around it: half a gigabyte that only the pipeline needs.
SPARK := $(VENV)/.spark
SPARK_LOCK := lab/tools/requirements-spark.txt

# The first of these that is new enough builds the environment; say PYTHON=... to choose.
PYTHONS := python3.11 python3 python3.12 python3.13 python
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# What is compiled when rmqha is installed.
LANE := $(wildcard rmqha/wire/lane/*_run.py rmqha/wire/lane/*.pxd) rmqha/store/files/fsync_loop.py \
	rmqha/store/derived/write_run.py

# Options for the tools behind a target: make test ARGS="-k ledger -x"
ARGS :=
# Tests wait more than they compute, and those with whole nodes most of all.
JOBS := 3
FAULT_JOBS := 4
PYTEST := $(PY) -m pytest -q -n $(JOBS) --dist worksteal
PYTEST_FAULTS := $(PY) -m pytest -q -n $(FAULT_JOBS) --dist worksteal tests/faults
# Spark's processes need both cores, and so do the tests that start many of them.
PYTEST_SPARK := $(PY) -m pytest -q tests/spark
# By hand alone, so in no lock file.
MUTATION := cosmic-ray==8.7.0
# What each target leaves out: slow and apart; also what starts, kills and corrupts whole
# nodes; also what needs Spark or measures.
NOT_TRIAL := spark
NOT_TEST := $(NOT_TRIAL) faults
NOT_QUICK := $(NOT_TEST) interop
NOT_CORE := $(NOT_QUICK) pipeline bench
IGNORED = $(addprefix --ignore=tests/,$(1))
# trial is told what to run, not what to leave; it finds tests in the folders' own folders.
FOLDERS := $(patsubst tests/%/__init__.py,%,$(wildcard tests/*/__init__.py))
LOOSE := $(patsubst tests/%.py,tests.%,$(wildcard tests/test_*.py))
MODULES = $(LOOSE) $(addprefix tests.,$(filter-out support $(1),$(FOLDERS)))
PLUGINS := $(wildcard twisted/plugins/*.py)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:
.PHONY: help setup spark test-core test test-faults test-quick test-spark trial trial-quick lint format docs demo demo-failover cluster demo-pipeline \
    pictures spark-cluster s3-server hdfs interop interop-full bench bench-java bench-clients bench-sets bench-spark mutants lock clean distclean

help: ## list the targets of every day
	@echo "usage: make TARGET [ARGS=...]"
	@echo
	@sed -n 's/^\([a-z0-9-]*\):.* ## \(.*\)/  \1	\2/p' Makefile | expand -t 16

help-all: ## list all targets
	@echo "usage: make TARGET [ARGS=...]"
	@echo
	@sed -n 's/^\([a-z0-9-]*\):.* ##* \(.*\)/  \1	\2/p' Makefile | expand -t 16

setup: $(READY) ## make .venv with the pinned dependencies, twistd and rmqha
	@echo "$(VENV) is ready"

$(READY): $(LOCK) setup.py pyproject.toml $(LANE)
	@python=; for candidate in $(PYTHON) $(if $(PYTHON),,$(PYTHONS)); do \
	    if $$candidate -c '$(NEW_ENOUGH)' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "make setup: needs Python 3.11 or later with its venv and ensurepip modules; tried: $(or $(PYTHON),$(PYTHONS))" >&2; \
	    exit 1; \
	fi; \
	if ! $(PY) -m pip --version >/dev/null 2>&1 || ! $(PY) -c '$(NEW_ENOUGH)' 2>/dev/null; then \
	    echo "making $(VENV) with $$($$python --version)"; \
	    $$python -m venv --clear $(VENV); \
	fi
	@echo "installing what $(LOCK) pins"
	@$(PY) -m pip install --quiet --require-hashes -r $(LOCK)
	@echo "compiling $(words $(filter %.py,$(LANE))) modules, where there is a C compiler: one to three minutes"
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@# Twisted keeps a list of plugins beside them; write it now, not at somebody's first start.
	@$(PY) -c 'from twisted.plugin import IPlugin, getPlugins; list(getPlugins(IPlugin))' >/dev/null 2>&1 || true
	@touch $@

$(SPARK): $(SPARK_LOCK) $(READY)
	@echo "installing what $(SPARK_LOCK) pins"
	@$(PY) -m pip install --quiet --require-hashes -r $(SPARK_LOCK)
	@touch $@

spark: $(SPARK) ### add what the pipeline needs to .venv: Spark, Java, Arrow; half a gigabyte
	@echo "$(VENV) has Spark"

# Says what runs with less where Spark was not installed.
WITHOUT = @[ -e $(SPARK) ] || echo "without Spark (make spark installs it): $(1)"

test-core: $(READY) ## run the tests that start no processes and need no Spark: less than two minutes
	@RMQHA_TESTS=core $(PYTEST) $(call IGNORED,$(NOT_CORE)) $(ARGS)

test: $(SPARK) ## run the test suite, all but tests/faults and tests/spark
	@$(PYTEST) $(call IGNORED,$(NOT_TEST)) $(ARGS)

test-faults: $(READY) ### run the tests that start, kill, cut and corrupt whole nodes: a quarter of an hour
	@$(PYTEST_FAULTS) $(ARGS)

test-quick: $(READY) ### run the tests that start no clusters of nodes; the pipeline's if Spark is there
	$(call WITHOUT,the tests that need it are skipped)
	@$(PYTEST) $(call IGNORED,$(NOT_QUICK)) $(ARGS)

test-spark: $(SPARK) ### run the slow tests of the pipeline: clusters, kill -9, whole ways
	@$(PYTEST_SPARK) $(ARGS)

trial: $(SPARK) ### run all but tests/spark under Twisted's own runner
	@$(PY) -m twisted.trial --reporter=text $(ARGS) $(call MODULES,$(NOT_TRIAL))

trial-quick: $(READY) ### run what `make test-core` runs under Twisted's own runner, or ONLY="tests.ha ..." of it
	@RMQHA_TESTS=core $(PY) -m twisted.trial --reporter=text -j $(JOBS) $(ARGS) $(or $(ONLY),$(call MODULES,$(NOT_CORE)))

# Without PySpark's types nothing can be said of the code that is called by it.
MYPY_ALL := rmqha $(PLUGINS)
MYPY_LESS := --follow-imports=silent --exclude '^rmqha/(pipeline|cli/spark)/' $(MYPY_ALL)

lint: $(READY) ## ruff and mypy; the pipeline's types if Spark is there
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	$(call WITHOUT,mypy leaves rmqha/pipeline and rmqha/cli/spark out)
	@$(PY) -m mypy $(if $(wildcard $(SPARK)),$(MYPY_ALL),$(MYPY_LESS))

format: $(READY) ### let ruff format and repair what it can
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

docs: $(READY) ## build docs/_build/html: the guide and the API reference
	@$(PY) -m sphinx --quiet -W --keep-going -b html docs docs/_build/html
	@$(PY) lab/tools/inventories.py docs/_build/inventories > docs/_build/links
	@$(PY) -m pydoctor --quiet --warnings-as-errors --project-name=rmqha --project-base-dir=. \
	    --docformat=epytext --theme=readthedocs --html-output=docs/_build/html/api \
	    $$(cat docs/_build/links) rmqha
	@echo "docs/_build/html/index.html"

demo: $(READY) ## a pair, a name server and a C++ client: send, consume, kill the slave, compare
	@$(PY) -m lab.demo $(ARGS)

demo-failover: $(READY) ### a set whose master is killed again and again: with etcd, where that is installed, or a Java broker beside two members (Maven, JDK)
	@$(PY) -m lab.demo_failover $(ARGS)

cluster: $(READY) ## two masters, two slaves, a name server: conf/2m-2s-sync, until Ctrl-C
	@$(PY) -m lab.cluster $(ARGS)

pictures: $(READY) ### make the pictures of the page and of commands in docs/_static, ten minutes (needs chromium)
	@$(PY) -m lab.pictures $(ARGS)

demo-pipeline: $(SPARK) ### a pair and a C++ client, and Spark: from the slave's files into a table, the master killed
	@$(PY) -m lab.demo_pipeline $(ARGS)

spark-cluster: $(SPARK) ### Spark's own master, two workers and a Connect server here, until Ctrl-C
	@$(PY) -m lab.spark_cluster $(ARGS)

s3-server: $(READY) ### fetch the S3 server that tests of object stores need (needs Maven and a JDK)
	@$(PY) -m lab.stock.s3_server

hdfs: $(READY) ### fetch the HDFS that tests of object stores need (needs Maven and a JDK)
	@$(PY) -m lab.stock.hdfs_cluster

interop: $(READY) ### run beside real RocketMQ brokers (needs Maven and a JDK), write docs/interop.md
	@$(PY) -m tests.interop $(ARGS)

interop-full: $(READY) ### the same with all pairs of versions, roles and scenarios
	@$(PY) -m tests.interop --full $(ARGS)

bench: $(READY) ### measure rmqha beside its alternatives, write lab/bench/RESULTS.md
	@$(PY) -m lab.bench $(ARGS)

bench-java: $(READY) ### measure beside stock RocketMQ (needs Maven and a JDK), write lab/bench/RESULTS-java.md
	@$(PY) -m lab.bench.java $(ARGS)

bench-clients: $(READY) ### measure both with stock clients (needs Maven and a JDK), write lab/bench/RESULTS-clients.md
	@$(PY) -m lab.bench.clients $(ARGS)

bench-sets: $(READY) ### measure sets with a controller beside stock ones (needs Maven and a JDK), write lab/bench/RESULTS-sets.md
	@$(PY) -m lab.bench.sets $(ARGS)

bench-spark: $(SPARK) ### measure what scans and uploads cost the clients of a pair, write lab/bench/RESULTS-spark.md
	@$(PY) -m lab.bench.spark $(ARGS)

LOCKED := $(PY) -m piptools compile --quiet --upgrade --strip-extras --allow-unsafe \
    --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

mutants: $(READY) ### change operators of what the promises rest on, and say which changes no test notices: hours, or ONLY="epoch ..."
	@$(PY) -m pip install --quiet $(MUTATION)
	@$(PY) lab/tools/mutants.py $(ONLY)

lock: $(READY) ### pin the newest dependencies that setup.py allows
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCKED) $(addprefix --extra=,test docs demo dev) \
	    --output-file $(LOCK) setup.py $(ARGS)
	@CUSTOM_COMPILE_COMMAND="make lock" $(LOCKED) --constraint $(LOCK) \
	    $(addprefix --extra=,pipeline java delta iceberg connect plots recipes) \
	    --output-file $(SPARK_LOCK) setup.py $(ARGS)

clean: ### remove what builds and tests left
	rm -rf build dist docs/_build _trial_temp* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f twisted/plugins/dropin.cache
	find rmqha twisted tests lab docs tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ### remove .venv too
	rm -rf $(VENV) *.egg-info
