"""The IR: one instruction per PTX instruction, structured control flow, typed operands."""
