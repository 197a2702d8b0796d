"""What a session refuses. Every message says what, the limit, and what would work."""

from __future__ import annotations

from npurt.errors import BlobError, NpurtError


class SessionError(NpurtError):
    """The base of all errors of `npurt.llm`; its text is one line for people."""


class NoLanguageModelError(SessionError):
    """The blob holds a plain graph, so there is nothing that a session could run."""


class PromptError(SessionError):
    """The prompt, or a token id that was given, cannot be used with this blob."""


class OptionError(SessionError):
    """An option of generation is out of its range."""


class TokenizerError(SessionError):
    """The blob's tokenizer is missing, not supported, or needs a package that is not installed."""


class DamagedTokenizerError(TokenizerError, BlobError):
    """The blob carries a tokenizer that cannot be read."""


class TemplateError(SessionError):
    """The blob's chat template is missing, fails, or needs a package that is not installed."""
