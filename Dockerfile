# tandem on processors, with the engines that EXTRAS names:
#
#   docker build --tag tandem .
#   docker build --tag tandem --build-arg EXTRAS=torch,jax,atari .
#   docker run --rm --volume "$PWD/runs:/home/tandem/runs" tandem train ppo CartPole-v1

FROM python:3.12-slim AS build
ARG EXTRAS=jax
WORKDIR /source
RUN pip install --no-cache-dir uv==0.13.9 && python -m venv /opt/tandem
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# --torch-backend=cpu: a torch without CUDA's libraries, where EXTRAS has it
RUN VIRTUAL_ENV=/opt/tandem uv pip install --no-cache --torch-backend=cpu ".[${EXTRAS}]"

FROM python:3.12-slim
COPY --from=build /opt/tandem /opt/tandem
ENV PATH=/opt/tandem/bin:$PATH \
    SDL_VIDEODRIVER=dummy \
    TF_CPP_MIN_LOG_LEVEL=3
RUN useradd --create-home --uid 1000 tandem
USER 1000
WORKDIR /home/tandem
ENTRYPOINT ["tandem"]
CMD ["--help"]
