# Everything here needs only python3 (3.11+) and make; each target sets itself up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup setup-dev demo run test check bench lock clean

setup: $(VENV)/.run-ready
setup-dev: $(VENV)/.dev-ready

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Pilothouse needs Python 3.11 or newer, this is %s" % sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: requirements/run.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the locked packages"
	@$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/run.lock
	@echo "$(CURDIR)" > $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pilothouse.pth
	@printf '#!%s\nimport sys\nfrom bot.cli import main\nsys.exit(main())\n' "$(CURDIR)/$(BIN)/python" > $(BIN)/pilothouse
	@chmod +x $(BIN)/pilothouse
	@touch $@

$(VENV)/.dev-ready: requirements/dev.lock $(VENV)/.run-ready
	@echo "Installing the locked packages for tests and checks"
	@$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/dev.lock
	@touch $@

# A real MCP server from npm, for the tests. Without npm its tests are skipped, on a CI machine they fail.
$(VENV)/npm/.ready: tests/support/npm/package.json tests/support/npm/package-lock.json $(VENV)/.dev-ready
	@command -v npm >/dev/null || { echo "npm is not here: tests that need it are skipped"; exit 0; }; \
	mkdir -p $(@D) && cp tests/support/npm/package.json tests/support/npm/package-lock.json $(@D)/ && \
	echo "Installing the locked npm package for tests" && \
	{ (cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null) || \
	{ [ -z "$$CI" ] && echo "npm could not install it: tests that need it are skipped" && exit 0; }; } && touch $@

demo: setup
	@$(BIN)/pilothouse demo $(ARGS)

run: setup
	@$(BIN)/pilothouse serve $(ARGS)

check: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: check $(VENV)/npm/.ready
	@$(BIN)/python -m pytest $(ARGS)

bench: setup-dev
	@$(BIN)/python -m bench $(ARGS)

lock:
	@$(PYTHON) -m pip install --quiet uv
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate pyproject.toml -o requirements/run.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra dev -c requirements/run.lock pyproject.toml -o requirements/dev.lock

clean:
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
