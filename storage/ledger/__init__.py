"""The decisions about a session, one short transaction each (`core.ledger` says what they promise).

arrive.py   a message with its disposition, a stop, a decision
claim.py    a worker takes the session, the turn takes its words
open.py     the model's answer and its calls
suspend.py  a turn waits for people
requests.py what they are asked: the decision, and every other end
close.py    the results and the stamp of a cut, or a dropped answer
settle.py   settle row, card, outbox, the next turn
"""
