"""The optimizers of pretraining, one per file; `make` chooses one by `optim.kind`.

All obey one contract, which checkpoints and engines rely on:
    the first `step` creates the state; the constructor creates none
    a parameter's state is `step` (the number of updates) and tensors, called moments
    `found_inf`, a scalar on the device: 1 makes `step` change nothing, without a read by the host
`adamw` and `adagrad` work element by element, so that ZeRO can give them flat slices. The others
need whole tensors and run under `single` and `ddp` only.
"""
