"""The whole configuration: typed dataclasses in `schema`, composed from Hydra in `compose`.

May use `tasks` and everything below it; the dataclasses themselves stand beside their code.
"""
