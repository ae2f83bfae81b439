"""The study on real training: 720 runs of tiny models, each faulty one forked from its healthy twin."""
