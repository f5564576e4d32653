FROM python:3.12-slim
WORKDIR /opt/tilewise
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY kernels ./kernels
COPY search ./search
COPY service ./service
COPY tilewise ./tilewise
COPY migrations ./migrations
RUN pip install --no-cache-dir -c constraints.txt '.[service,postgres]'
CMD ["tilewise", "serve", "--host", "0.0.0.0"]
