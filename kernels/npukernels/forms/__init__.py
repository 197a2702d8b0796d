"""Every form of every kernel of the library, each with an example and a float64 reference."""

from npukernels.forms import attention, caches, codes, elementwise, experts, integers, products, ring, rows, state
from npukernels.forms.form import Form

FORMS: tuple[Form, ...] = (
    *products.FORMS, *codes.FORMS, *integers.FORMS, *experts.FORMS, *elementwise.FORMS, *rows.FORMS, *state.FORMS,
    *attention.FORMS, *caches.FORMS, *ring.FORMS,
)  # fmt: skip

__all__ = ["FORMS", "Form"]
