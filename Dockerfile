# One image for all services: `docker build -t hbox:dev .`; what it runs is named by the arguments: `docker run hbox:dev scheduler-core`.
# BASE is any image with Python 3.11 or newer and venv. Packages are wheels whose hashes stand in image/*.lock; nothing is compiled.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ONLY_BINARY=:all: PIP_ROOT_USER_ACTION=ignore PATH=/tools/bin:$PATH
RUN python3 -m venv /tools && python3 -m venv --without-pip /opt/hbox
COPY image/requirements.lock image/build.lock /src/image/
RUN /tools/bin/pip --python /opt/hbox/bin/python install --quiet --require-hashes -r /src/image/requirements.lock \
 && /tools/bin/pip install --quiet --require-hashes -r /src/image/build.lock
COPY helm /src/helm
COPY apps /src/apps
COPY libs /src/libs
COPY services /src/services
# Bytecode is checked by no file's date, and its own does not depend on the day: two builds of one commit have the same files.
RUN PIP_ONLY_BINARY= /tools/bin/pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir /wheels /src/apps/* /src/libs/* /src/services/* \
 && /tools/bin/pip --python /opt/hbox/bin/python install --quiet --no-deps --no-index /wheels/*.whl \
 && mkdir /opt/hbox/share \
 && /tools/bin/cyclonedx-py environment --output-reproducible --of JSON -o /opt/hbox/share/sbom.cdx.json /opt/hbox/bin/python \
 && /opt/hbox/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/hbox/lib \
 && find /opt/hbox -exec touch --no-dereference --date=@0 {} +

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="HBox" \
      org.opencontainers.image.description="A scheduling platform for large accelerator clusters" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/hbox /opt/hbox
# python:3.11-slim has no bytecode of Python's own library: every start and every check of health compiled 200 modules, half a second of the processor.
RUN stdlib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -x '/(site-packages|dist-packages|ensurepip|idlelib|lib2to3|test|tests|tkinter|turtledemo)/' "$stdlib"
# The root may be read-only: what a service writes is in /tmp, and in volumes at /data, /health and /keys.
RUN install --directory --owner=65532 --group=65532 /data /health /keys
ENV PATH=/opt/hbox/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["hbox-service"]
CMD ["--help"]
