"""Diagnosis of a run from its records: what is wrong with it, since when, how sure that is, and what to do.

    print(rmetric.diagnose("run.jsonl"))

Events come from the default detectors, states from :func:`rmetric.states_of`; a finding is made of both and says each
thing once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
