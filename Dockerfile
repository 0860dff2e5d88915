# A name server and a broker for development and tests: mqdev in a container. docs/start/test-your-app.md says how to use
# it, docs/operations/deploy.md how to run mqbroker, mqnamesrv and mqproxy by the same image.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/metrics.txt requirements/grpc.txt requirements/image.txt requirements/
RUN python -m venv /opt/rocketbroker \
    && /opt/rocketbroker/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/metrics.txt \
    && /opt/rocketbroker/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/grpc.txt \
    && pip install --no-cache-dir --no-deps --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels . \
    && /opt/rocketbroker/bin/pip install --no-cache-dir --no-deps wheels/*.whl \
    && /opt/rocketbroker/bin/pip uninstall --yes pip

FROM python:3.13-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/rocketbroker rocketbroker
COPY --from=build /opt/rocketbroker /opt/rocketbroker
# MQ_ADVERTISED_HOST is the address that clients reach the container by: an IP address, or a name that leads to one.
ENV PATH=/opt/rocketbroker/bin:$PATH MQ_ADVERTISED_HOST=127.0.0.1
USER 10001
WORKDIR /var/lib/rocketbroker
VOLUME /var/lib/rocketbroker
EXPOSE 9876 10909 10911
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --start-interval=2s --retries=5 CMD ["mqbroker", "--check"]
ENTRYPOINT ["mqdev", "--host", "0.0.0.0"]
CMD ["--store", "/var/lib/rocketbroker/store"]
