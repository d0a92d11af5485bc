"""What Pilothouse costs, measured in one run: `python -m bench`, or `make bench`.

Every figure stands beside its aim. The far ends (a local Slack, a scripted model) run in a process of their own, so
that CPU, bytes and memory are the product's alone; everything between them is what runs in production.

turns      CPU against the bare SDK, commits, statements and bytes a turn, and how they grow in a long session
cuts       from a click to the cancelled call and to the settle, from a steer to the cut
crowd      300 turns at once, and the memory that running and idle sessions take
start      from the start of a process to the first request of a turn that it resumes
histories  checking and repairing long histories
"""
