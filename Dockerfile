# fixformer serve in a container; docs/deploy.md says how to build and run it.
FROM python:3.11-slim

# The CPU build of torch: the server computes on the CPU, and the usual wheel brings gigabytes of CUDA.
WORKDIR /opt/fixformer
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt ".[serve]" \
    && useradd --system --no-create-home --uid 10001 fixformer

# Uploads go to /tmp, which should be a tmpfs; nothing else is written.
USER 10001
ENV PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/ready')"]
ENTRYPOINT ["fixformer", "serve", "--host", "0.0.0.0"]
