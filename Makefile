# Needs only Python 3.11 to 3.13, pip and make. Every target makes the .venv that it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto

.PHONY: help demo test sweep lint format golden golden-update pages ci clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# One stamp for each set of extras: a second run installs nothing.
$(VENV)/.extras-%: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

demo: $(VENV)/.extras-chat ## Compile the embedded model and let it write a few lines
	$(BIN)/npuc run --prompt 'In the beginning' --max-new-tokens 49 --temperature 0.6 --top-k 40 --seed 3 --mode exact

test: $(VENV)/.extras-all ## Run the test suite
	$(BIN)/python -m pytest -n $(JOBS)

sweep: $(VENV)/.extras-all ## Run the slow sweeps that `make test` leaves out
	$(BIN)/python -m pytest -n $(JOBS) -m slow

lint: $(VENV)/.extras-all ## Style, types and the rules between the packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.layering

format: $(VENV)/.extras-all ## Rewrite the files in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(VENV)/.extras-all ## Compare today's programs with tests/golden
	$(BIN)/python -m tools.golden

golden-update: $(VENV)/.extras-all ## Write today's programs to tests/golden
	$(BIN)/python -m tools.golden --update
	$(BIN)/python -m tests.golden.update
	$(BIN)/python -m benchmarks.credibility --embedded

pages: $(VENV)/.extras-all ## Write the pages that are made from the code: formats, operators, kernels
	$(BIN)/python -m npuc.report.format_tables
	$(BIN)/python -m npuc.report.ops_page
	$(BIN)/python -m tools.gallery
	$(BIN)/python -m tools.guide --update

ci: ## What continuous integration runs
	bash .ci/run

clean: ## Remove the .venv and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
