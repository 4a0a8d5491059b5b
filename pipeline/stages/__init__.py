"""The stages, one thin file each.

May use every room but `bench` and `commands`.
"""
