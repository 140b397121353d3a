"""The hot pieces of learners as ops: each has a definition in torch, which is what it means, and outputs with a pullback.

Behind some of them stands C (`c/`), used where the library was compiled and the tensors are ones that it reads. That is
decided inside the op and nowhere else.
"""
