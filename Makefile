# Two words are enough from a fresh clone: `make demo`, `make test`. Python with venv and pip is all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN_SUFFIX := demo-$(shell date +%Y%m%d-%H%M%S)
DEMO_RUN := runs/demo/ppo__CartPole-v1__seed1__$(RUN_SUFFIX)
WORKERS ?= 2
# the tests and trainings run side by side; each takes one thread of its own
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo check test test-all bench faults fuzz soak docs clean

setup: $(READY)

# torch goes first and pinned: unpinned it would bring gigabytes of CUDA to a machine without a GPU
$(READY): requirements.lock pyproject.toml hatch_build.py $(wildcard src/rl_training/kernels/c/*.[ch])
	@echo "Installing into $(VENV): a few minutes, about 2 GB with all extras ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' requirements.lock)"
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable ".[all,dev,docs]"
	@touch $(READY)

demo: setup
	@echo "Training PPO on CartPole-v1 ..."
	@$(BIN)/rl-training train ppo/cartpole --output-dir runs/demo --run-suffix $(RUN_SUFFIX)
	@$(BIN)/rl-training eval --checkpoint $(DEMO_RUN) --num-episodes 50
	@$(BIN)/rl-training plot $(DEMO_RUN) --out $(DEMO_RUN)/learning_curve.png
	@$(BIN)/rl-training report $(DEMO_RUN) --out $(DEMO_RUN)/report.html
	@echo
	@echo "run:            $(DEMO_RUN)"
	@echo "checkpoints:    $(DEMO_RUN)/checkpoints"
	@echo "learning curve: $(DEMO_RUN)/learning_curve.png"
	@echo "report:         $(DEMO_RUN)/report.html (open it in a browser)"
	@echo "your turn:      source $(VENV)/bin/activate, then rl-training list"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow"

test-all: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# some two hours, on a quiet machine; make bench ROW=sac measures one row and leaves the page as it is
SPEED := $(BIN)/python benchmarks/speed
bench: setup
ifdef ROW
	$(SPEED)/run.py --row $(ROW)
else
	$(SPEED)/peak.py
	$(SPEED)/run.py
	$(SPEED)/parts.py
	$(SPEED)/profiles.py
	$(SPEED)/scaling.py
	$(SPEED)/memory.py
	$(SPEED)/page.py
endif

# the long version of tests/faults: some thousand processes killed and resumed; results in benchmarks/faults/results
faults: setup
	$(BIN)/python benchmarks/faults/kill.py
	$(BIN)/python benchmarks/faults/mutations.py
	$(BIN)/python benchmarks/faults/compare.py
	$(BIN)/python benchmarks/faults/page.py

# the documentation site, in site/; look at it with: .venv/bin/mkdocs serve
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# other rubbish with FUZZ_SEED=1; more of it with FUZZ_EXAMPLES=100000
fuzz: setup
	FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),10000) $(BIN)/python -m pytest tests/faults -k fuzz

# an hour each of SAC and of evolution strategies, watched from outside; SOAK_MINUTES=2 for a try
soak: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/faults/soak.py --minutes $(or $(SOAK_MINUTES),60)

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache dist site
