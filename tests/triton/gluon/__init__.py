"""Kernels in Gluon, each right and with the mistakes that the language allows (``FAULT``)."""
