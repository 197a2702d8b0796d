"""For every test: one BLAS thread, set before NumPy is first imported.

The suite runs one worker per core; a second thread in each only makes them wait for each other. No result may depend on
it: tests of that start processes with other settings. Nor does any test depend on answers that others have kept.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["NPUC_NO_CACHE"] = "1"
