"""Rules for instructions whose operands MIR has in another form."""
