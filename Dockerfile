# Built without a network, from the base image and wheelhouse/ (docs/howto/closed_environments.md):
#   make wheelhouse
#   docker build --network none --tag understudy .
# The wheelhouse must have been gathered with the version of Python named here, on Linux.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
COPY wheelhouse /wheelhouse
RUN cd /wheelhouse && sha256sum --check --quiet SHA256SUMS
RUN python -m venv /opt/understudy
RUN /opt/understudy/bin/pip install --no-index --find-links /wheelhouse --require-hashes --requirement /wheelhouse/requirements.txt
# An image that cannot make a private release is not built.
RUN /opt/understudy/bin/understudy doctor

FROM python:${PYTHON}-slim-bookworm
COPY --from=build /opt/understudy /opt/understudy
RUN useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin steward && mkdir /data && chown 10001 /data
ENV PATH=/opt/understudy/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10001
VOLUME /data
WORKDIR /data
HEALTHCHECK NONE
ENTRYPOINT ["understudy"]
CMD ["--help"]
