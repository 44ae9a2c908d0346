"""The procedure: questions in a fixed order, each answered from the facts, until one of them decides.

What was measured is looked at first, because a cure for what is wrong is worth more than another split. Then the
lessons' order: does it fit, and if not, which piece does not.
"""

from __future__ import annotations

from calculators.predict.advisor.steps import exchanges, fit, pieces, places, rules, sharding, work
from calculators.predict.advisor.steps.step import Step

PROCEDURE = (
    # the numbers, and what was measured
    Step(asks="Do the numbers keep the rules of which sizes go together?", look=rules.are_kept),
    Step(asks="Can its context parallelism be cut further?", look=rules.sequence_goes_further),
    Step(asks="Do the ranks of the experts have equally much to do?", look=work.experts_are_balanced),
    Step(asks="Does it read weights nearly as fast as memory allows?", look=work.memory_is_busy),
    Step(asks="Does an exchange take as long as it should on that link?", look=exchanges.in_time),
    Step(asks="Does full sharding get slower with every host?", look=sharding.hosts_slow_it_down),
    Step(asks="Does memory per device fall as devices are added?", look=sharding.memory_falls),
    Step(asks="Is the link’s bandwidth used?", look=exchanges.bandwidth_is_used),
    Step(asks="Did a faster link help?", look=exchanges.faster_link_helps),
    Step(asks="Do the devices compute most of the time?", look=work.devices_are_busy),
    Step(asks="Are enough requests in flight to fill the stages?", look=work.stages_are_filled),
    Step(asks="Is the split faster than one device alone?", look=work.split_is_faster),
    # the first fork, and then which piece
    Step(asks="Are all hosts in one place?", look=places.hosts_are_together),
    Step(asks="Does one copy of the model fit on one device?", look=fit.one_fits),
    Step(asks="What does not fit?", look=pieces.what_does_not_fit),
    Step(asks="What devices are there, and how do they reach each other?", look=places.what_there_is),
)
