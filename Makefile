# `make run` and `make test` each set up everything they need; nothing comes first.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles what it imports, once; most of what is installed is never imported. Where it may
# not keep that, as in many containers, each of the hundreds of processes of tests compiles again.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
  -c constraints.txt

APT_INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends

EXAMPLE := matmul:m=1024,n=512,k=2048,dtype=f32

.PHONY: run model test test-all test-rest test-long browser check release-check format docs serve fuzz soak power-cut chaos bench results results-all clean

run: .venv/installed-service
	$(BIN)/tilewise tune $(EXAMPLE) --peers
	@echo
	$(BIN)/tilewise script $(EXAMPLE)

# A whole model: six layers in bf16, 151 MB of weights; some minutes.
model: .venv/installed-service
	$(BIN)/python -m examples.models mlp -o mlp.mlir
	$(BIN)/tilewise model mlp.mlir

serve: .venv/installed-service
	$(BIN)/tilewise serve

# All that a change is likely to break. `make test-all` adds full grids, processes and whole models.
test: .venv/installed-dev browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not full"

test-all: .venv/installed-dev browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long"

# What `make test` leaves out.
test-rest: .venv/installed-dev browser
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "full and not long"

# The tests of the dashboard look at it with Chromium; without one they are skipped and say so.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  command -v google-chrome >/dev/null || \
	  { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && \
	    { $(APT_INSTALL) chromium || { apt-get update -qq && $(APT_INSTALL) chromium; }; } \
	    >/dev/null 2>&1; } || \
	  echo "no Chromium, and none could be installed: tests of the dashboard in a browser are skipped"

check: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python -m pytest -q tests/test_project.py

# Wheel and sdist: contents, size, metadata, versions, installation in fresh environments.
release-check: .venv/installed-dev
	$(BIN)/python -m pytest -q tests/tilewise/installed tests/service/api/test_openapi_document.py

format: .venv/installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The pages of docs/ and a reference made from the code, as a static site in site/.
docs: .venv/installed-docs
	$(BIN)/python -m docs.website -o site

# All parameters, and ten times as many random kernels and scripts, others each time; hours.
test-long: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 --timeout 7200 -m "hypothesis or long" --hypothesis-profile long

# 3000 random sequences of requests and 300 requests of each operation, other ones each time.
fuzz: .venv/installed-dev
	$(BIN)/python -m pytest --timeout 7200 --hypothesis-profile fuzz tests/service/api/test_fuzz.py

# Twenty minutes of mixed load on a service, on loopback; `make test` runs a few seconds of it.
soak: .venv/installed-dev
	$(BIN)/python -m benchmarks.serving.soak

# The power goes at 50 random moments, while trials are committed to SQLite and to PostgreSQL.
power-cut: .venv/installed-dev
	$(BIN)/python -m benchmarks.surviving.power_cut

# A quarter of an hour of kill -9 and SIGSTOP over a cluster's processes; `make test` runs a round of each.
chaos: .venv/installed-dev
	$(BIN)/python -m tests.service.cluster.chaos --rounds 60 --postgresql

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks.peers.main_job

# README's table on this machine, in about an hour; `results-all` adds every other table, for hours.
# Both resume where they were interrupted.
results results-all: .venv/installed-peers
	$(BIN)/python -m benchmarks.results $(if $(filter results-all,$@),--all)
	$(BIN)/python -m benchmarks.tables --write

clean:
	rm -rf .venv build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tilewise needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed-%: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP_INSTALL) --editable '.[$*]'
	@touch $@
