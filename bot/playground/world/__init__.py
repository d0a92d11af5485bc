"""The world of the playground: Prometheus, Alertmanager, Loki and Kubernetes with the data of one incident."""

from bot.playground.world.server import World as World
