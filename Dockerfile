# docker build --tag rmetric . && docker run --rm --volume "$PWD/results:/rmetric/results" rmetric make reproduce
FROM python:3.11-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make git \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /rmetric
# Libraries first: a change of the code does not install them anew.
COPY Makefile pyproject.toml requirements.txt README.md LICENSE ./
COPY rmetric/__init__.py rmetric/__init__.pyi rmetric/
RUN make .venv/.core
COPY . .
CMD ["make", "smoke"]
