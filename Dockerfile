# The image that measures: the engine with its locked dependencies on a CUDA base. Its contract is entrypoint/README.md,
# how to run it docs/docker.md, why this base docs/internals/adr/0013-image-and-release.md.
#
# Plain syntax on purpose: no syntax line, no heredoc, no --link, --chmod or --mount, so that the classic builder, BuildKit and
# buildah all build the same file, without fetching a front end.
ARG BASE_IMAGE=nvidia/cuda:13.0.2-base-ubuntu24.04@sha256:2ab6381d970b211fb93853796dc6707eb8a72575a375c422b17cf4d8b2641701


# What the measured code finds on the system. torch brings its own CUDA libraries; torch.compile needs a C++ compiler and Python's
# headers at run time. Versions are those of the base's release: its archive keeps only the newest of each.
FROM ${BASE_IMAGE} AS system
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates g++ git python3 python3-dev python3-venv tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log \
    # a mounted workspace belongs to whoever runs the container's host, not to the container's user
    && git config --system --add safe.directory '*' \
    && python3 -m venv /opt/ci-bench
ENV PATH=/opt/ci-bench/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1


# ci-bench itself as a wheel; what builds it stays behind in this stage.
FROM system AS wheel
WORKDIR /build
COPY requirements-build.lock ./
RUN pip install --no-deps --require-hashes --only-binary=:all: --requirement requirements-build.lock
COPY LICENSE README.md pyproject.toml ./
COPY schemas ./schemas
COPY examples/workflows ./examples/workflows
COPY src ./src
RUN pip wheel --no-index --no-build-isolation --no-deps --wheel-dir /wheels .


FROM system AS image
# Another torch, such as "torch==2.11.0"; as constraints.txt says where it is left empty.
ARG TORCH=
# A further package index, for builds of torch with another CUDA. It stays in the image's history: no credentials in it.
ARG TORCH_INDEX=

# The dependencies, in a layer that a new version of ci-bench leaves as it is.
COPY constraints.txt pyproject.toml requirements.lock entrypoint/image_lock.py /opt/ci-bench/lock/
RUN chmod -R a+rX /opt/ci-bench/lock \
    && python /opt/ci-bench/lock/image_lock.py write "${TORCH}" "${TORCH_INDEX}" \
    # every file by its hash; nothing from source, since what builds it would come without one
    && pip install --no-compile --no-deps --require-hashes --only-binary=:all: --requirement /opt/ci-bench/lock/hashed.txt \
    # another torch, and what comes with it, by version alone
    && if [ -n "${TORCH}${TORCH_INDEX}" ]; then \
        pip install --no-compile ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}"} \
            --constraint /opt/ci-bench/lock/locked.txt --requirement /opt/ci-bench/lock/wanted.txt; \
    fi \
    && python /opt/ci-bench/lock/image_lock.py check \
    && pip check \
    # on all cores, which pip would not; templates among the files are no Python
    && { python -m compileall -q -j 0 /opt/ci-bench/lib >/dev/null || true; }

COPY --from=wheel /wheels /tmp/wheels
COPY entrypoint /opt/ci-bench/entrypoint
RUN pip install --no-deps --no-index /tmp/wheels/*.whl \
    && rm -rf /tmp/wheels \
    && chmod -R a+rX /opt/ci-bench/entrypoint \
    && chmod a+x /opt/ci-bench/entrypoint/*.sh

# Nothing is fetched while measuring: a model that isn't there is an error at once, not a row of retries. Python's byte code is
# compiled above; at run time the root file system may be read-only.
ENV HF_HUB_OFFLINE=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG BASE_IMAGE
LABEL org.opencontainers.image.title="ci-bench" \
      org.opencontainers.image.description="Gate pull requests on GPU performance and loss parity." \
      org.opencontainers.image.source="https://github.com/ci-bench/ci-bench" \
      org.opencontainers.image.documentation="https://github.com/ci-bench/ci-bench/blob/main/docs/docker.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

# No USER: the action names the runner's own user, or starts as root where base and head are users of their own.
WORKDIR /workspace
ENTRYPOINT ["/usr/bin/tini", "-s", "-g", "--", "/opt/ci-bench/entrypoint/image.sh"]
CMD ["--help"]
