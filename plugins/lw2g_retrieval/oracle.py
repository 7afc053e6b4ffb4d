"""The oracle: every test sample gets the set of its true task. A control, never a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from lw2g.plugin import BuildContext, ContractError, RetrievalStrategy
from lw2g_retrieval.options import OracleConfig

__all__ = ["Oracle"]


class Oracle(RetrievalStrategy):
    """Marks a run whose evaluation takes the true task from the label.

    A strategy sees queries alone, so this one cannot answer: for a control strategy (``control`` is true) the
    evaluation looks up the true tasks itself.
    """

    control: ClassVar[bool] = True

    def __init__(self, config: OracleConfig, context: BuildContext) -> None:
        super().__init__(context)

    def scores(self, query: Tensor, seen: Sequence[int], task_of_class: Tensor) -> Tensor:
        """Refuse: queries do not tell the true task.

        Raises:
            ContractError: Always.
        """
        raise ContractError(
            "retrieval 'oracle' cannot retrieve from queries", "take the true task ids where control is true"
        )
