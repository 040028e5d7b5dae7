"""Scaled idempotence of attention OV operators.

The reference implementation of arXiv:2609.01129, "Scaled Idempotence in Transformer Attention:
Paired OV Geometry and Shared-Value Algebras". Import it as ``si``:

>>> import scaled_idempotence as si
>>> model = si.open_model("smollm2-135m")
>>> heads = si.survey(model, progress=False)
>>> len(heads), int((heads.closure >= 0.9).sum())
(270, 13)
"""

import lazy_loader as _lazy

# What a name costs is paid when it is first used: importing the package imports no torch.
__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

__version__ = "0.1.0"
