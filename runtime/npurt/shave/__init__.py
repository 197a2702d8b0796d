"""SHAVE bytecode: the rules of each opcode, a builder, the verifier, the machine and the listing."""

from npurt.shave.builder import Arg, ProgramBuilder, Register
from npurt.shave.listing import listing
from npurt.shave.machine import Prepared, prepare
from npurt.shave.program import ArgSpec, Instruction, Program, RegisterSpec, parse

__all__ = [
    "Arg",
    "ArgSpec",
    "Instruction",
    "Prepared",
    "Program",
    "ProgramBuilder",
    "Register",
    "RegisterSpec",
    "listing",
    "parse",
    "prepare",
]
