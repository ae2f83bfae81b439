# make reproduce    720 simulated runs beside the published real ones: all tables, all figures (2 to 4 minutes, no torch)
# make smoke        the same with 36 simulated runs                 make check       format, lint, types, import contracts, site
# make case-study   a tiny model trained with injected faults       make test-fast   every module
# make mechanism    attention, routers and updates under faults     make test        all but the longest tests
# make corruption   flipped bits, and their repair                  make test-all    all tests     make bench  what it costs
# make real-study   720 real runs, and 1,380 more: the data set (four hours on two cores)
# make abroad       detectors on external runs, the zoo, bugs and the study's sets (5 minutes)
# make ladder       where the paper's F1 comes from: its conditions given up one after the other (2 minutes)
# make artifact     every claim of ARTIFACT.md checked, and a table of what was found (a quarter to half an hour)
# make gpu          all that needs a GPU, in ten minutes: overhead, repair, real models' shapes; one table
# make zoo          115 kinds of training, healthy and with the bugs that people make (an hour and a half on two cores)
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
PIP    := $(VENV)/bin/python -m pip --disable-pip-version-check
# A module is compiled when it is first imported: most of what torch and others bring never is.
PIP_INSTALL := PYTHONWARNINGS=ignore $(PIP) install --quiet --no-compile --constraint requirements.txt
# No more workers than cores: in a new clone each of them compiles what it imports. One more gains a tenth after that.
PYTEST := $(RUN) -m pytest -n $(shell getconf _NPROCESSORS_ONLN) --dist worksteal
CODE   := $(shell find rmetric studies -name "*.py")

# Compiled modules are kept, whatever the environment says: some commands start a dozen processes.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help reproduce smoke case-study mechanism corruption real-study zoo gpu ladder artifact abroad \
	check site test test-all test-fast bench clean sample picture FORCE

help:
	@sed -n 's/^# \(make \)/\1/p' Makefile

# An older pip takes twice as long to find out which versions go together.
$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed; make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet 'pip>=25'
	touch $@

# The pinned versions serve as constraints, so that everybody's figures come out the same; no torch here.
$(VENV)/.core: $(VENV)/.made pyproject.toml requirements.txt
	$(PIP_INSTALL) --editable .
	touch $@

$(VENV)/.live: $(VENV)/.core
	$(PIP_INSTALL) --editable '.[live]'
	touch $@

# It holds the other two, so that they need no run of pip before it.
$(VENV)/.dev: $(VENV)/.made pyproject.toml requirements.txt requirements-dev.txt
	$(PIP_INSTALL) --constraint requirements-dev.txt --editable '.[dev]'
	touch $(VENV)/.core $(VENV)/.live $@

# $(1) target, $(2) folder of the logs, $(3) folder of the results, $(4) options of the study, $(5) studies beside it
define STUDY
# Without it --resume refuses the folder; the study writes it when it begins, and make would remove it after Ctrl-C.
.PRECIOUS: $(2)/manifest.json
$(2)/manifest.json: $(VENV)/.core FORCE
	$(RUN) run_modern_experiments.py --out $(2) --resume $(4)

$(3)/.done: $(2)/manifest.json $(5) $(CODE)
	mkdir -p $(3)/tables
	$(RUN) -m studies.paper.reproduce --logs $(2) $(5) --out $(3) > $(3)/tables/screen.txt
	touch $$@

$(1): $(3)/.done
	@cat $(3)/tables/headline.md
	@echo
	@echo 'logs:    $(2)/'
	@echo 'tables:  $(3)/tables/   (Markdown, CSV, LaTeX; all of them as text in screen.txt)'
	@echo 'figures: $(3)/figures/  (PNG, PDF)'
endef

$(eval $(call STUDY,reproduce,logs_FULL_METRIC,results,,$(wildcard data/real_runs.parquet)))
$(eval $(call STUDY,smoke,logs_SMOKE,results_smoke,--smoke,))

case-study: $(VENV)/.live
	$(RUN) run_case_study.py

# A killed one goes on where it was; a finished one costs only its scores, tables and figures.
mechanism: $(VENV)/.live
	$(RUN) run_case_study.py --suite mechanism --resume

corruption: $(VENV)/.live
	$(RUN) run_case_study.py --suite sdc

# A killed one goes on where it was. The data sets in data/ are replaced when all runs are there.
real-study: $(VENV)/.live
	$(RUN) run_modern_experiments.py --backend torch --out logs_REAL --resume
	$(RUN) run_modern_experiments.py --backend torch --transfer --out logs_REAL_TRANSFER --resume
	$(RUN) run_modern_experiments.py --backend torch --seed 1 --repetitions 4 --out logs_REAL_FRESH --resume
	$(RUN) run_modern_experiments.py --backend torch --transfer --seed 2 --out logs_REAL_TRANSFER_2 --resume
	$(RUN) run_modern_experiments.py --backend torch --seed 2 --repetitions 4 --out logs_REAL_FRESH_2 --resume
	$(RUN) run_modern_experiments.py --backend torch --transfer --seed 3 --out logs_REAL_TRANSFER_3 --resume
	$(RUN) run_modern_experiments.py --backend torch --transfer --seed 4 --out logs_REAL_TRANSFER_4 --resume
	$(RUN) run_modern_experiments.py --backend torch --transfer --seed 5 --out logs_REAL_TRANSFER_5 --resume
	for set in "" _TRANSFER _FRESH _TRANSFER_2 _FRESH_2 _TRANSFER_3 _TRANSFER_4 _TRANSFER_5; do \
	  file=data/real_runs$$(echo $$set | tr A-Z a-z).parquet; \
	  $(RUN) -m studies.real_runs.publish --from logs_REAL$$set --out $$file || exit 1; \
	done

# A killed one goes on where it was.
zoo: $(VENV)/.live
	$(RUN) -m studies.zoo.record --out logs_ZOO --resume
	$(RUN) -m studies.zoo.record --out logs_ZOO_2 --zoo zoo_2 --seeds 0 1 --disturbed 0 --resume
	$(RUN) -m studies.zoo.record --out logs_ZOO_3 --zoo zoo_3 --disturbed 0 --resume
	$(RUN) -m studies.zoo.record --out logs_ZOO_4 --zoo zoo_4 --disturbed 0 --resume
	$(RUN) -m studies.zoo.record --out logs_BUGS --bugs --resume
	$(RUN) -m studies.zoo.record --out logs_BUGS_2 --bugs bugs_2 --resume
	$(RUN) -m studies.real_runs.publish --from logs_ZOO --out data/zoo.parquet
	$(RUN) -m studies.real_runs.publish --from logs_ZOO_2 --out data/zoo_2.parquet
	$(RUN) -m studies.real_runs.publish --from logs_ZOO_3 --out data/zoo_3.parquet
	$(RUN) -m studies.real_runs.publish --from logs_BUGS --out data/bugs.parquet

# results/gpu/gpu.json and gpu.md; what the machine lacks is skipped with the reason.
gpu: $(VENV)/.live
	$(RUN) -m studies.gpu.run

ladder: $(VENV)/.core
	$(RUN) -m studies.ladder.run

artifact: $(VENV)/.dev
	$(RUN) -m studies.artifact.check

# Any detector on strangers' runs, the zoo and the study's sets: ABROAD="--strangers FOLDER --zoo logs_ZOO --plugin FILE"
abroad: $(VENV)/.core
	$(RUN) -m studies.abroad.benchmark $(ABROAD)

check: $(VENV)/.dev
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(MAKE) --no-print-directory site

# results/site/index.html; a dead link or a docstring that cannot be read is an error (--quiet would hide both).
site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

# Leaves out what is marked long: ten seconds of a core or so each, end to end, over what smaller tests cover.
test: $(VENV)/.dev
	$(PYTEST) -m "not long"

test-all: $(VENV)/.dev
	$(PYTEST) --hypothesis-profile thorough

# Covers every module; leaves out what is marked slow as well.
test-fast: $(VENV)/.dev
	$(PYTEST) --hypothesis-profile fast -m "not slow and not long"

bench: $(VENV)/.dev
	$(RUN) benchmarks/study.py
	$(RUN) benchmarks/monitor.py --out results/benchmarks/monitor.json

clean:
	rm -rf results results_smoke logs_SMOKE logs_FULL_METRIC/run_*.jsonl logs_FULL_METRIC/manifest.json

# The committed sample of the study: copied from the full set, checked byte for byte by the tests.
SAMPLE := llama-3-8b_lr_spike_high_rep1 llama-3-8b_rms_norm_error_medium_rep2 llama-3-8b_network_degradation_low_rep1 \
	llama-3-8b_none_rep1 mistral-7b_gradient_explosion_medium_rep2 mistral-7b_data_corruption_high_rep1 \
	mistral-7b_low_precision_attention_high_rep2 mistral-7b_none_rep2 gpt-4-moe_node_failure_high_rep2 \
	gpt-4-moe_silent_data_corruption_high_rep1 gpt-4-moe_expert_failure_medium_rep2 gpt-4-moe_router_imbalance_high_rep1

sample: logs_FULL_METRIC/manifest.json
	rm -f logs_FULL_METRIC/sample/*.jsonl
	for run in $(SAMPLE); do cp logs_FULL_METRIC/run_*_$$run.jsonl logs_FULL_METRIC/sample/ || exit 1; done

# The picture of the README.
picture: ladder
	cp results/ladder/figure_ladder.png docs/ladder.png
