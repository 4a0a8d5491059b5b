"""What a pretraining will cost: memory, tokens, operations, disk, hours.

May use `workflow` and everything below it.
"""
