"""Every form of every kernel of the library, each with an example and a float64 reference."""

from npukernels.forms import attention, elementwise, products, rows
from npukernels.forms.form import Form

FORMS: tuple[Form, ...] = (*products.FORMS, *elementwise.FORMS, *rows.FORMS, *attention.FORMS)

__all__ = ["FORMS", "Form"]
