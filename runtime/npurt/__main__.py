"""``python -m npurt run BLOB``: runs a blob where only NumPy is installed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from npurt import blas, load, open_device
from npurt.errors import BlobError, NpurtError
from npurt.llm import Request, Sampling
from npurt.llm.answer import answer, prompt_of, result_json, summary

OK, WRONG_USE, BLOB_REFUSED, INTERRUPTED = 0, 2, 4, 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m npurt", description="Runs npuc blobs on a simulated NPU.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="answer a prompt", description="Answers a prompt with the model of a blob.")
    run.add_argument("blob", metavar="BLOB", help="a file that `npuc compile` wrote")
    prompt = run.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt as text (needs the package tokenizers)")
    prompt.add_argument("--prompt-ids", metavar="IDS", help="the prompt as token ids: '1 2 3'")
    run.add_argument("--max-new-tokens", type=int, default=128, metavar="K", help="most tokens of the answer (128)")
    run.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest token (0)")
    run.add_argument("--top-k", type=int, default=0, metavar="K", help="draw from the K likeliest, 0: all (0)")
    run.add_argument("--top-p", type=float, default=1.0, metavar="P", help="draw from the likeliest up to P (1)")
    run.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (0)")
    run.add_argument("--mode", choices=["fast", "exact"], default="fast",
                     help="fast: float32 on this host; exact: the device's own bits (fast)")  # fmt: skip
    run.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")
    return parser


def _run(options: argparse.Namespace) -> None:
    sampling = Sampling(options.temperature, options.top_k, options.top_p, seed=options.seed)
    request = Request(options.max_new_tokens, sampling)
    if options.mode == "exact":
        blas.one_thread()
    image = load(options.blob)
    prompt = prompt_of(image, options.prompt, options.prompt_ids)
    device = open_device(image, options.mode, warn=lambda line: print(f"note: {line}", file=sys.stderr))
    result = answer(image, device, prompt, request, out=None if options.json else sys.stdout)
    if options.json:
        print(result_json(result))
    else:
        print(summary(result), file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit codes: 0 good, 2 wrong use, 4 the blob is refused, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except NpurtError as error:
        print(f"error: {error}", file=sys.stderr)
        return BLOB_REFUSED if isinstance(error, BlobError) else WRONG_USE
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); stdout is replaced to keep the interpreter's last flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"error: {error.filename or options.blob}: {error.strerror or error}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return OK


if __name__ == "__main__":
    sys.exit(main())
