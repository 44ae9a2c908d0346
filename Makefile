# Sixfold on one machine. `make run` and `make test` set up everything they need; neither needs root.
# Every target is quick when nothing changed. `make help` lists them.

# The Python that .venv was made with, or python3 the first time.
PYTHON ?= $(or $(wildcard $(shell cat .venv/.sixfold-python 2>/dev/null)),python3)
PORT ?= 8000
ARGS ?=
# pip installs the pinned torch; system reuses the one that $(PYTHON) imports. Empty: as last time.
TORCH ?=
VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help run test setup lint bench soak constraints

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /make \1\t/p' Makefile | expand -t 20

run: setup ## serve the site with its lab worker and print the address that signs you in (PORT=8000)
	@exec $(VENV)/python manage.py start --port $(PORT) $(ARGS)

test: setup ## run the whole suite (ARGS="-k words" for a part)
	@exec $(VENV)/python -m pytest $(ARGS)

setup: ## make .venv and install everything (TORCH=system reuses a torch that is already installed)
	@exec $(PYTHON) tutor/bootstrap.py --torch "$(TORCH)"

lint: setup ## style, types, import directions, templates
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports
	$(VENV)/djlint --lint --quiet templates

bench: setup ## measure what the project promises; prints a table and writes build/bench.json
	@exec $(VENV)/python -m tests.bench $(ARGS)

soak: setup ## let learners click and runs go for a while, then print what happened (ARGS="--minutes 2")
	@exec $(VENV)/python -m tests.soak $(ARGS)

constraints: setup ## pin what is tested, for every supported Python at once, into constraints.txt
	$(VENV)/python -m pip install --quiet --upgrade uv
	$(VENV)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --upgrade \
	  --custom-compile-command "make constraints" \
	  --output-file constraints.txt pyproject.toml
