"""What a model would take on a machine, before any compile: whether it fits, how fast it is and what bounds it."""

from npuc.estimate.analytic import Analytic, analytic, analytic_record
from npuc.estimate.formats import FORMATS, WeightFormat

__all__ = ["FORMATS", "Analytic", "WeightFormat", "analytic", "analytic_record"]
