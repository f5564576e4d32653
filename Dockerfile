# Two images: `service` answers, and migrates; `worker` is also scheduler and driver of a cluster.
# Both run as a user of no rights, and write to /tmp and to volumes alone.
FROM python:3.12-slim AS sources
WORKDIR /sources
COPY pyproject.toml setup.cfg MANIFEST.in constraints.txt README.md LICENSE ./
# `tilewise` has links to the folders beside it; COPY keeps links.
COPY kernels ./kernels
COPY search ./search
COPY service ./service
COPY tilewise ./tilewise
COPY migrations ./migrations
RUN python -m venv --without-pip /opt/tilewise

FROM sources AS installed-service
RUN pip --python /opt/tilewise/bin/python install --no-cache-dir -c constraints.txt '.[service,postgres]'

FROM sources AS installed-worker
RUN pip --python /opt/tilewise/bin/python install --no-cache-dir -c constraints.txt '.[cluster,postgres]'

FROM python:3.12-slim AS bare
ENV PATH=/opt/tilewise/bin:$PATH HOME=/tmp TILEWISE_CACHE_DIR=/var/cache/tilewise
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin tilewise \
 && install --directory --owner tilewise --group tilewise /var/cache/tilewise /tokens
USER 10001:10001

FROM bare AS worker
COPY --from=installed-worker /opt/tilewise /opt/tilewise
CMD ["tilewise", "worker"]

FROM bare AS service
COPY --from=installed-service /opt/tilewise /opt/tilewise
CMD ["tilewise", "serve", "--host", "0.0.0.0"]
