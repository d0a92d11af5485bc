"""The local Slack: the far end of the demo and of all tests. `LocalSlack` in `server` is the way in.

people       who is there                     state        what is there, with every version of it
web_api      the door for programs            chat, agents, looking, views, uploads: its methods
hands        the door for people: hands, clicks, admin; `page` is the same over HTTP
wire         envelopes, acknowledgements, redelivery, HTTP mode
block_rules  limits, reference: what Slack refuses, and how it calls that
keeping      what of it survives the process
chaos        what goes wrong on purpose
"""

from bot.playground.slack.people import Channel, Person, Workspace
from bot.playground.slack.refusal import Impossible
from bot.playground.slack.server import LocalSlack
from bot.playground.slack.web_api import Call
from bot.playground.slack.wire import Delivery

__all__ = ["Call", "Channel", "Delivery", "Impossible", "LocalSlack", "Person", "Workspace"]
