# make demo   builds a sample plugin repository and drives the hooks through it
# make test   runs the tests
# make lint   runs the linters and type checkers alone
# make bench  measures what a hook costs
# make docs   writes the generated pages of docs/ anew
#
# Each target makes the virtual environment that it needs and uses it again while it is up to date.
# PYTHON is the interpreter they are made with (3.11 or newer).

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist loadscope
SHELL := /bin/sh
.DELETE_ON_ERROR:
.PHONY: demo test lint bench docs clean

# Whatever a wheel is made of; a newer file here means that attngate is installed anew.
SOURCES := $(shell find hooks validators gpu_runner -type f ! -path '*/__pycache__/*' 2>/dev/null)
PIP := -m pip --disable-pip-version-check --quiet

demo: .venv-demo/attngate-installed
	.venv-demo/bin/attngate demo

test: .venv-test/ready
	.venv-test/bin/python -m pytest $(PYTEST_ARGS)

lint: .venv-test/ready
	.venv-test/bin/python -m pytest tests/architecture

bench: .venv-test/ready
	.venv-test/bin/python benchmarks/hook_latency.py

docs: .venv-test/ready
	.venv-test/bin/python docs/generate.py

clean:
	rm -rf .venv-demo .venv-test build dist attngate.egg-info

.venv-test/ready: pyproject.toml requirements/test.txt hooks/shims/attngate
	$(PYTHON) requirements/new_environment.py .venv-test
	.venv-test/bin/python $(PIP) install -c requirements/test.txt -e '.[gpu,dev]'
	touch $@

# The demo installs attngate as a user does: a wheel, and none of the developers' tools.
.venv-demo/packages-installed: pyproject.toml requirements/demo.txt
	$(PYTHON) requirements/new_environment.py .venv-demo
	rm -rf build
	.venv-demo/bin/python $(PIP) install -c requirements/demo.txt '.[gpu]'
	touch $@

.venv-demo/attngate-installed: .venv-demo/packages-installed $(SOURCES)
	rm -rf build
	.venv-demo/bin/python $(PIP) install --no-deps --force-reinstall .
	rm -rf build
	touch $@
