"""The one definition of the blob: section names and types, records, relocations, bytecode.

Writer, loader, device, disassembler and checker all import these; nothing else may define a byte of the format.
"""
