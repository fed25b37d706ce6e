"""Compiler options of the tokenizer."""

# A vocabulary of 150,000 tokens takes seconds to read without optimisation, in every test that loads one.
OPTIMISED = ["-O2"]
