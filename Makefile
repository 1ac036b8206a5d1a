# HBox. `make run` and `make test` are all that a newcomer needs; each target installs what it uses.
PYTHON ?= python3
UV     := .uv/bin/uv
BIN    := .venv/bin
PACKAGES := libs/common apps/sandbox apps/cli services/topology-collector services/scheduler-core services/quota-ledger services/health-monitor services/binder services/job-controller services/node-agent services/node-remedy services/admission services/console
SOURCES := apps libs services tests
CACHE  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hbox
export UV_LINK_MODE ?= copy
export UV_PYTHON_DOWNLOADS ?= never
# Containers often disable Python's bytecode files; each process would then compile all its imports, which is most of the cost of the tests.
export PYTHONDONTWRITEBYTECODE :=
# Use the machine's certificates if it has any: behind a company's proxy uv's built-in ones are not enough.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= true
endif

.DEFAULT_GOAL := help
.PHONY: help install run image test fuzz kube-assets promtool otel sim test-real test-gpu test-deploy check mutants chaos bench format lock docs audit sbom clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(UV): requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "HBox needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "==> uv, into .uv/"
	@$(PYTHON) -m venv .uv || { echo "Could not make a virtual environment. On Debian: apt-get install python3-venv"; rm -rf .uv; exit 1; }
	@.uv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-uv.lock

.venv/.installed: $(UV) requirements.lock pyproject.toml $(addsuffix /pyproject.toml,$(PACKAGES))
	@echo "==> environment, into .venv/"
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps $(addprefix --editable ,$(PACKAGES))
	@touch $@

install: .venv/.installed ## create the environment, with .venv/bin/hbox

run: install ## replay a day's trace through the whole platform on an emulated cluster; print a report and an audit
	@$(BIN)/hbox replay --state .hbox

image: ## build the container image hbox:VERSION; BASE=image with Python 3.11
	@docker build --tag hbox:$$(sed -n 's/^appVersion: //p' helm/hbox/Chart.yaml) --build-arg REVISION=$$(git rev-parse HEAD) $(if $(BASE),--build-arg BASE=$(BASE)) .

#: Some tests wait while others compute (tests/side_by_side.py), so there are more workers than cores; `pytest FILE` starts none. Still more workers would
#: make the platforms compete for the processors, and each platform costs more the longer it runs.
WORKERS ?= $(shell echo $$(($$(nproc) < 4 ? 4 * $$(nproc) : 12)))
#: Each worker has a control plane of its own.
REAL_WORKERS ?= $(shell echo $$(($$(nproc) < 3 ? 2 * $$(nproc) : 6)))
BESIDE := --dist loadscope --no-loadscope-reorder

# $(1): number of workers; $(2): further arguments of pytest.
define side_by_side
@$(BIN)/python -m tests.compiled
@$(BIN)/python -m pytest -n $(1) $(BESIDE) $(2); rc=$$?; [ $$rc -eq 1 ] || exit $$rc; \
echo "==> repeating failed tests one after the other: on a busy machine a test with a time limit may exceed it"; \
$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(2)
endef

test: install ## run every test that needs no special machine, WORKERS=8 in parallel [4 per core, at most 12]
	$(call side_by_side,$(WORKERS))

fuzz: install ## run the property-based tests with new random examples; N=2000: number of ledger histories; CLUSTERS=1000: of explained clusters
	@HBOX_LEDGER_EXAMPLES=$(or $(N),300) HBOX_FUZZ_LINES=1000000 $(BIN)/python -m pytest -n $$(nproc) $(BESIDE) --hypothesis-profile=random -m hypothesis
	@$(BIN)/python -m tests.explained $(or $(CLUSTERS),1000)

sim: install ## run the platform in virtual time under faults of all doors, SEEDS=200 seeds from SEED=1 on; a violation prints its command
	@$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),200) --seed $(or $(SEED),1)

kube-assets: ## build etcd, Kubernetes and kwok from Go modules, once (5 to 10 minutes), unless KUBEBUILDER_ASSETS names a folder with them
	@PYTHON=$(PYTHON) tests/real/assets/build $(CACHE)/kube-assets $(CACHE)

promtool: ## build Prometheus' promtool from Go modules, once (10 minutes); tests of rules and metrics use it if it exists
	@PYTHON=$(PYTHON) tests/monitoring/assets/build $(CACHE)/promtool $(CACHE)

otel: ## build Prometheus and an OpenTelemetry collector from Go modules, once (15 minutes), for the test of compose.yaml's profile otel
	@PYTHON=$(PYTHON) tests/monitoring/collector/build $(CACHE)/otel $(CACHE)

test-real: install kube-assets ## run the conformance suite and the platform on a real control plane, REAL_WORKERS=4 in parallel [2 per core, at most 6]
	$(call side_by_side,$(REAL_WORKERS),-m real tests/conformance tests/real)

test-gpu: install ## compare NVML's reader with nvidia-smi on this machine's GPUs, which it only reads; skipped without one
	@$(BIN)/python -m pytest -m gpu tests/gpu

test-deploy: install ## test image, chart and compose.yaml on a node that it creates (root on Debian; 20 minutes to build, once), or on HBOX_DEPLOY_KUBECONFIG
	@$(if $(HBOX_DEPLOY_KUBECONFIG),,PYTHON=$(PYTHON) $(BIN)/python -m tests.deploy.machine --) $(BIN)/python -m pytest -m deploy tests/deploy

check: install ## check format, lint, types, import contracts, generated documents, planted faults, words, changelog, version and commit subjects
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports
	@$(BIN)/python -m hbox_common.asyncapi --check docs/reference/asyncapi.yaml docs/reference/bus.md docs/reference/events
	@$(BIN)/python -m hbox_common.reasons.page --check docs/reference
	@$(BIN)/python -m hbox_common.workloads.page --check docs/reference
	@$(BIN)/python -m hbox_health.page --check docs/reference
	@$(BIN)/python -m hbox_console.openapi --check docs/reference/openapi.json
	@$(BIN)/python -m hbox_cli.platform.chart --check helm/hbox
	@$(BIN)/python -m hbox_cli.platform.rights --check helm/hbox docs/guides/rbac.md
	@$(BIN)/python -m hbox_cli.platform.dashboards --check helm/hbox/files/monitoring/dashboards
	@$(BIN)/python -m tests.mutants --check
	@$(BIN)/python -m tests.words
	@$(BIN)/python -m tests.plugin_names
	@$(BIN)/python -m tests.adr
	@$(BIN)/python -m tests.citations
	@$(BIN)/python -m tests.changelog
	@$(BIN)/python -m tests.version
	@$(BIN)/python -m tests.commits

mutants: install ## plant each known fault in a copy of the tree and report those that no test detects; J=2 in parallel, SERVICE=binder, NAME=part of a name
	@$(BIN)/python -m tests.mutants $(if $(J),-j $(J)) $(addprefix --service ,$(SERVICE)) $(NAME)

chaos: install ## kill every process N=100 times under load; FAULTS=100: faults of all kinds; REAL=1: real control plane; BROKERS=3; CLUSTER=20: faults of the brokers alone; OLDER=COMMIT: upgrades and rollbacks; SEED=1
	@$(BIN)/python -m tests.chaos --kills $(or $(N),$(if $(FAULTS)$(OLDER)$(CLUSTER),0,100)) --cluster $(or $(CLUSTER),0) --faults $(or $(FAULTS),0) --seed $(or $(SEED),1) $(if $(REAL),--real) --brokers $(or $(BROKERS),1) $(addprefix --older ,$(OLDER))

bench: install ## measure speed and memory, and print the limit of each figure; REAL=1: compare with kube-scheduler on a real API server
	@$(BIN)/python -m tests.bench $(if $(REAL),real)

format: install ## format the sources
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

docs: install ## regenerate the generated documents
	@$(BIN)/python -m hbox_common.asyncapi --write docs/reference/asyncapi.yaml docs/reference/bus.md docs/reference/events
	@$(BIN)/python -m hbox_common.reasons.page --write docs/reference
	@$(BIN)/python -m hbox_common.workloads.page --write docs/reference
	@$(BIN)/python -m hbox_health.page --write docs/reference
	@$(BIN)/python -m hbox_console.openapi --write docs/reference/openapi.json
	@$(BIN)/python -m hbox_cli.platform.chart --write helm/hbox
	@$(BIN)/python -m hbox_cli.platform.rights --write helm/hbox docs/guides/rbac.md
	@$(BIN)/python -m hbox_cli.platform.dashboards --write helm/hbox/files/monitoring/dashboards
	@$(BIN)/python -m tests.adr --write

OWN := common sandbox cli topology scheduler ledger health binder jobs agent admission console
LOCK := pip compile --universal --generate-hashes --no-header --no-annotate --quiet --python-version 3.11 $(addprefix --no-emit-package hbox-,$(OWN))

lock: $(UV) ## regenerate requirements*.lock and image/*.lock from all pyproject.toml files
	@$(UV) $(LOCK) --group dev $(addsuffix /pyproject.toml,$(PACKAGES)) pyproject.toml --output-file requirements.lock
	@$(UV) $(LOCK) --constraint requirements.lock --extra nvml $(addsuffix /pyproject.toml,$(PACKAGES)) --output-file image/requirements.lock
	@printf 'uv-build>=0.9\ncyclonedx-bom\n' | $(UV) $(LOCK) --no-build - --output-file image/build.lock
	@echo 'pip-audit' | $(UV) $(LOCK) --no-build - --output-file image/audit.lock
	@echo 'uv>=0.9,<1' | $(UV) $(LOCK) - --output-file requirements-uv.lock

audit: $(UV) ## list known vulnerabilities of the image's packages, from PyPI's advisories (Error 1: found some, Error 3: no answer)
	@test -x .audit/bin/pip-audit || $(UV) venv --quiet --clear --python $(PYTHON) .audit
	@$(UV) pip sync --quiet --python .audit/bin/python --require-hashes image/audit.lock
	@.audit/bin/python image/audit.py .audit/bin/pip-audit --requirement image/requirements.lock --disable-pip --require-hashes

sbom: $(UV) ## write the image's bill of materials (CycloneDX) to sbom.cdx.json; in the image: /opt/hbox/share/sbom.cdx.json
	@test -x .sbom/tools/bin/python || $(UV) venv --quiet --clear --python $(PYTHON) .sbom/tools
	@$(UV) pip sync --quiet --python .sbom/tools/bin/python --require-hashes image/build.lock
	@test -x .sbom/image/bin/python || $(UV) venv --quiet --clear --python $(PYTHON) .sbom/image
	@$(UV) pip sync --quiet --python .sbom/image/bin/python --require-hashes image/requirements.lock
	@$(UV) pip install --quiet --python .sbom/image/bin/python --no-deps $(addprefix ./,$(PACKAGES))
	@.sbom/tools/bin/cyclonedx-py environment --output-reproducible --of JSON -o sbom.cdx.json .sbom/image/bin/python
	@echo "==> sbom.cdx.json"

clean: ## delete everything that the targets created, except the tools
	@rm -rf .venv .audit .sbom sbom.cdx.json .hbox .mypy_cache .ruff_cache .pytest_cache .hypothesis
