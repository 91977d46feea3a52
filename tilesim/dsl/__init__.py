"""Instruction namespaces of the builder: ``k.mbarrier``, ``k.tma``, ``k.bulk``, ``k.wgmma``...

Each method appends one PTX instruction; its docstring is that of the instruction's class, where the
rules are.
"""
