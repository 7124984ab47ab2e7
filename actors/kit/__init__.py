"""The actor machinery on Pykka, free of any Stepwell rule.

* cell: an actor's mailbox and life: turns, failures, closing
* ref: the address of a pooled actor
* pooled: what actor classes derive from
* timers: one heap per scheduler, `self.timers` per actor
* scheduler: who runs next; on a thread of its own, or under virtual time
* supervision: what a supervisor is told, and how often it may restart
* reply: the future behind `ask`, which refuses to block a scheduler
* service: a thread of its own for what must block
* clock: the only readers of real time, and the virtual clock
"""
