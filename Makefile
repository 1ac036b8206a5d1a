# HBox. `make run` and `make test` are all that a newcomer needs; each target installs what it uses.
PYTHON ?= python3
UV     := .uv/bin/uv
BIN    := .venv/bin
PACKAGES := libs/common apps/sandbox apps/cli services/topology-collector services/scheduler-core services/quota-ledger services/health-monitor services/binder services/job-controller services/node-agent services/admission
SOURCES := apps libs services tests
CACHE  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hbox
export UV_LINK_MODE ?= copy
export UV_PYTHON_DOWNLOADS ?= never
# Containers often forbid compiled files beside the sources; each process then compiles all that it imports, most of what the tests cost.
export PYTHONDONTWRITEBYTECODE :=
# The machine's own certificates, where it has them: behind a company's proxy uv's built-in ones are not enough.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= true
endif

.DEFAULT_GOAL := help
.PHONY: help install run image test fuzz kube-assets promtool otel test-real test-deploy check mutants chaos bench format lock docs audit sbom clean

help: ## what the targets do
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

install: .venv/.installed ## the environment, with .venv/bin/hbox in it

run: install ## the main job: the whole platform on an emulated cluster, a trace replayed, report and audit
	@$(BIN)/hbox replay --state .hbox

image: ## the container image, as hbox:VERSION; BASE=image with Python 3.11
	@docker build --tag hbox:$$(sed -n 's/^appVersion: //p' helm/hbox/Chart.yaml) --build-arg REVISION=$$(git rev-parse HEAD) $(if $(BASE),--build-arg BASE=$(BASE)) .

#: Some tests wait while others compute (tests/side_by_side.py), so there are more workers than cores; `pytest FILE` by itself has none. With more of them
#: platforms fight for the processors, and each costs more the longer it lives.
WORKERS ?= $(shell echo $$(($$(nproc) < 4 ? 4 * $$(nproc) : 12)))
#: Each with a control plane of its own.
REAL_WORKERS ?= $(shell echo $$(($$(nproc) < 3 ? 2 * $$(nproc) : 6)))
BESIDE := --dist loadscope --no-loadscope-reorder

# $(1): so many side by side; $(2): more words of pytest.
define side_by_side
@$(BIN)/python -m tests.compiled
@$(BIN)/python -m pytest -n $(1) $(BESIDE) $(2); rc=$$?; [ $$rc -eq 1 ] || exit $$rc; \
echo "==> those that failed once more, one after the other: on a busy machine a test that counts on time may miss it"; \
$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(2)
endef

test: install ## every test that needs no special machine, WORKERS=8 (4 a core, 12 at most) side by side
	$(call side_by_side,$(WORKERS))

fuzz: install ## the tests that search, with other examples each time; N=2000: histories of the ledger
	@HBOX_LEDGER_EXAMPLES=$(or $(N),300) $(BIN)/python -m pytest -n $$(nproc) $(BESIDE) --hypothesis-profile=random -m hypothesis

kube-assets: ## etcd, Kubernetes and kwok as programs, from Go modules: 5 to 10 minutes, once; or KUBEBUILDER_ASSETS=folder
	@PYTHON=$(PYTHON) tests/real/assets/build $(CACHE)/kube-assets $(CACHE)

promtool: ## Prometheus' promtool, from Go modules: some 10 minutes, once; tests of rules and metrics use it where it is
	@PYTHON=$(PYTHON) tests/monitoring/assets/build $(CACHE)/promtool $(CACHE)

otel: ## Prometheus and an OpenTelemetry collector, from Go modules: some 15 minutes, once; the test of compose.yaml's profile otel uses them where they are
	@PYTHON=$(PYTHON) tests/monitoring/collector/build $(CACHE)/otel $(CACHE)

test-real: install kube-assets ## the conformance suite and the platform on a real control plane, REAL_WORKERS=4 (2 a core) side by side
	$(call side_by_side,$(REAL_WORKERS),-m real tests/conformance tests/real)

test-deploy: install ## the image, the chart and compose.yaml on a node of our own (root on Debian; built in 20 minutes, once), or on HBOX_DEPLOY_KUBECONFIG
	@$(if $(HBOX_DEPLOY_KUBECONFIG),,PYTHON=$(PYTHON) $(BIN)/python -m tests.deploy.machine --) $(BIN)/python -m pytest -m deploy tests/deploy

check: install ## format, lint, types, import contracts, generated documents, tables of planted faults, idiom words, citations, changelog, version, commit subjects
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports
	@$(BIN)/python -m hbox_common.asyncapi --check docs/reference/asyncapi.yaml docs/reference/bus.md
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

mutants: install ## planted faults, and whether the tests nearest to them notice; J=2 side by side, SERVICE=binder, NAME=words of names
	@$(BIN)/python -m tests.mutants $(if $(J),-j $(J)) $(addprefix --service ,$(SERVICE)) $(NAME)

chaos: install ## every process killed N=100 times under load; FAULTS=100: as many faults of all kinds; REAL=1: on a real control plane; BROKERS=3: a cluster of them; CLUSTER=20: such a cluster's brokers alone, each as often, all at once, wiped, rolled back; OLDER=COMMIT: upgrades; SEED=1
	@$(BIN)/python -m tests.chaos --kills $(or $(N),$(if $(FAULTS)$(OLDER)$(CLUSTER),0,100)) --cluster $(or $(CLUSTER),0) --faults $(or $(FAULTS),0) --seed $(or $(SEED),1) $(if $(REAL),--real) --brokers $(or $(BROKERS),1) $(addprefix --older ,$(OLDER))

bench: install ## speed and memory, with the limit beside each figure; REAL=1: beside kube-scheduler on a real API server
	@$(BIN)/python -m tests.bench $(if $(REAL),real)

format: install ## rewrite the sources in our format
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

docs: install ## the generated documents
	@$(BIN)/python -m hbox_common.asyncapi --write docs/reference/asyncapi.yaml docs/reference/bus.md
	@$(BIN)/python -m hbox_cli.platform.chart --write helm/hbox
	@$(BIN)/python -m hbox_cli.platform.rights --write helm/hbox docs/guides/rbac.md
	@$(BIN)/python -m hbox_cli.platform.dashboards --write helm/hbox/files/monitoring/dashboards
	@$(BIN)/python -m tests.adr --write

OWN := common sandbox cli topology scheduler ledger health binder jobs agent admission
LOCK := pip compile --universal --generate-hashes --no-header --no-annotate --quiet --python-version 3.11 $(addprefix --no-emit-package hbox-,$(OWN))

lock: $(UV) ## requirements*.lock and image/*.lock anew, from all pyproject.toml files
	@$(UV) $(LOCK) --group dev $(addsuffix /pyproject.toml,$(PACKAGES)) pyproject.toml --output-file requirements.lock
	@$(UV) $(LOCK) --constraint requirements.lock --extra nvml $(addsuffix /pyproject.toml,$(PACKAGES)) --output-file image/requirements.lock
	@printf 'uv-build>=0.9\ncyclonedx-bom\n' | $(UV) $(LOCK) --no-build - --output-file image/build.lock
	@echo 'pip-audit' | $(UV) $(LOCK) --no-build - --output-file image/audit.lock
	@echo 'uv>=0.9,<1' | $(UV) $(LOCK) - --output-file requirements-uv.lock

audit: $(UV) ## known vulnerabilities of what is in the image, by the advisories of PyPI; asks the network (Error 1: some, Error 3: could not be asked)
	@test -x .audit/bin/pip-audit || $(UV) venv --quiet --clear --python $(PYTHON) .audit
	@$(UV) pip sync --quiet --python .audit/bin/python --require-hashes image/audit.lock
	@.audit/bin/python image/audit.py .audit/bin/pip-audit --requirement image/requirements.lock --disable-pip --require-hashes

sbom: $(UV) ## the bill of materials of what is in the image (CycloneDX), into sbom.cdx.json; the image has it as /opt/hbox/share/sbom.cdx.json
	@test -x .sbom/tools/bin/python || $(UV) venv --quiet --clear --python $(PYTHON) .sbom/tools
	@$(UV) pip sync --quiet --python .sbom/tools/bin/python --require-hashes image/build.lock
	@test -x .sbom/image/bin/python || $(UV) venv --quiet --clear --python $(PYTHON) .sbom/image
	@$(UV) pip sync --quiet --python .sbom/image/bin/python --require-hashes image/requirements.lock
	@$(UV) pip install --quiet --python .sbom/image/bin/python --no-deps $(addprefix ./,$(PACKAGES))
	@.sbom/tools/bin/cyclonedx-py environment --output-reproducible --of JSON -o sbom.cdx.json .sbom/image/bin/python
	@echo "==> sbom.cdx.json"

clean: ## all that the targets made, but not the tools
	@rm -rf .venv .audit .sbom sbom.cdx.json .hbox .mypy_cache .ruff_cache .pytest_cache .hypothesis
