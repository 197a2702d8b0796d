"""Language-model sessions: prompts in, tokens and text out. NumPy and the standard library; see `Session`."""

from .errors import NoLanguageModelError, OptionError, PromptError, SessionError, TemplateError, TokenizerError
from .generation import Piece, Request, Result, Stats, StopReason
from .model_info import ModelInfo
from .sampling import Sampling
from .session import Generation, Session

__all__ = [
    "Generation",
    "ModelInfo",
    "NoLanguageModelError",
    "OptionError",
    "Piece",
    "PromptError",
    "Request",
    "Result",
    "Sampling",
    "Session",
    "SessionError",
    "Stats",
    "StopReason",
    "TemplateError",
    "TokenizerError",
]
