"""Translation validation: a corpus of kernels by several compilers and several ptxas, machine code
that is changed, and what validation says of them."""
