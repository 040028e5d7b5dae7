"""Linear algebra of OV operators: tensor code that knows no file and no model.

Every function is batched over leading dimensions, works in float64, and touches a ``d x d``
matrix nowhere: an operator ``T = O V^T`` is only ever its factors or an ``r x r`` core.
"""
