"""A zoo of trainings that are unlike the study's: many kinds, recorded live, healthy and with the bugs people make."""
