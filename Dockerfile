# An image with the command muster and the Python package: docker build -t muster .
#   docker run --rm -v "$PWD:/data" muster train clicks.cache
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends npm
WORKDIR /source
COPY debian/control debian/control
RUN apt-get build-dep -y --no-install-recommends ./
COPY . .
RUN scripts/deb

FROM debian:bookworm-slim
RUN --mount=type=bind,from=build,source=/source/build/deb,target=/packages \
    apt-get update && \
    apt-get install -y --no-install-recommends /packages/muster_*.deb /packages/libmuster0_*.deb /packages/python3-muster_*.deb && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /data
ENTRYPOINT ["muster"]
