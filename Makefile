# Two commands do all set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# TORCH_INDEX=<url or folder>  another torch build    WHEELHOUSE=<folder>  install without a network
PIP_FLAGS := $(if $(WHEELHOUSE),--no-index --find-links $(WHEELHOUSE)) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
STAMP := $(VENV)/.installed
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test lint docs install wheelhouse test-browser test-cluster soak clean

# DeepSpeed exists for Linux only: without it the demo trains in one process, and gets the same model.
WITHOUT_DEEPSPEED = $$($(BIN)/python -c 'import importlib.util as util; \
	print("" if util.find_spec("deepspeed") else "trainer.strategy=single trainer.devices=1")')

demo: install
	$(BIN)/sesame run experiment=demo $(WITHOUT_DEEPSPEED)

test: install lint
	WANDB_MODE=offline $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not browser and not cluster and not soak" --durations 25 --durations-min 4

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The reference pages are made from the code; `make test` fails when they are not current.
docs: install
	$(BIN)/python -m pipeline.commands.reference docs/reference

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[cluster,demo,dev,onnx,ray,remote,tensorboard]'
	touch $@

# Everything `make install` needs, for a machine without a network: make install WHEELHOUSE=wheelhouse
wheelhouse:
	$(PYTHON) -m pip wheel $(PIP_FLAGS) -c constraints.txt -w wheelhouse '.[cluster,demo,dev,onnx,ray,remote,tensorboard]' hatchling editables

test-browser: install
	$(BIN)/python -m pytest -m browser

# A SLURM controller and three node daemons on this machine; as root, with Debian's slurm-wlm and munge.
test-cluster: install
	WANDB_MODE=offline $(BIN)/python -m pytest -m cluster

# Damaged files, kills, failing disks and flipped bytes, counted: the tables of docs/reliability.md; run by hand.
soak: install
	$(BIN)/python -m tests.fuzz.worker
	$(BIN)/python -m tests.soak.table
	$(BIN)/python -m pytest -m soak

# What make made; never the store, which may hold weeks of training.
clean:
	rm -rf $(VENV) wheelhouse .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './store/*' -prune -exec rm -rf {} +
	@echo "the store stays; sesame clean shows what no run needs, rm -r store removes all outputs"
