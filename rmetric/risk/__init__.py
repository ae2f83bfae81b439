"""What an alert means: P(failure within k steps), P(the run heals by itself), and which family of faults it looks like.

The shipped model is plain numbers in ``model.json`` and needs NumPy alone; fitting it needs scikit-learn.
"""
