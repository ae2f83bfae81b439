"""Tables and figures of a study, as a paper prints them; :mod:`rmetric.report` makes the page about single runs."""
