"""Makes the default model from the text: `python -m models.default.build`.

Stages: text, tokenizer, training, figures, export. The trained weights stay in the work folder, so `--skip-training`
repeats the last two stages alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from . import corpus, tokenizer
from .shape import Shape

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "npuc" / "data" / "default_model"
REFERENCE = ROOT / "tests" / "models" / "data" / "default_model.npz"


def train_weights(shape: Shape, tok: Tokenizer, documents: list[list[list[int]]], weights: Path, seed: int) -> float:
    """Trains and writes the f16 weights to `weights` (also every 200 steps on the way); gives back the seconds."""
    from .net import Net, half_weights
    from .train import Plan, train

    net, plan = Net(shape, seed), Plan(seed=seed + 1)

    def each(step: int, loss: float, seconds: float) -> None:
        print(f"step {step:5}/{plan.steps}  loss {loss:.3f} nats per token  {seconds / 60:5.1f} min", flush=True)
        if step % 200 == 0:
            np.savez(weights, **half_weights(net))  # type: ignore[arg-type]

    seconds = train(net, documents, plan, each)
    np.savez(weights, **half_weights(net))  # type: ignore[arg-type]
    return seconds


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m models.default.build", description=__doc__)
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the finished model")
    parser.add_argument("--work", type=Path, default=Path("build/default-model"), help="folder of the trained weights")
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="logits and tokens for the tests")
    parser.add_argument("--text", type=Path, help="a file with the printed text, instead of the `bible` command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip-training", action="store_true", help="use the weights in the work folder")
    options = parser.parse_args()

    shape, parts = Shape(), corpus.split(corpus.chapters(corpus.raw_text(options.text)))
    options.work.mkdir(parents=True, exist_ok=True)
    tok = tokenizer.train_tokenizer(corpus.lines(parts.train), shape.vocab)
    tokenizer.save(tok, options.work / "tokenizer.json")
    encoded = tokenizer.encode_verses(tok, parts.train)
    tokens, characters = sum(len(v) for d in encoded for v in d), len(corpus.lines(parts.train))
    print(
        f"{len(parts.train)} chapters to train on, {len(parts.held_out)} held out; "
        f"{tokens} tokens for {characters} characters",
        flush=True,
    )
    weights = options.work / "weights.npz"
    if not options.skip_training:
        seconds = train_weights(shape, tok, encoded, weights, options.seed)
        print(f"trained in {seconds / 60:.1f} minutes", flush=True)

    from . import evaluate, export
    from .net import Net, load_half

    with np.load(weights) as stored:
        half = {name: stored[name] for name in shape.weight_shapes()}
    net = Net(shape, options.seed)
    load_half(net, half)
    evaluate.report(net, tok, parts)
    export.write_folder(options.out, shape, half, options.work / "tokenizer.json")
    evaluate.write_reference(net, tok, options.reference)


if __name__ == "__main__":
    main()
