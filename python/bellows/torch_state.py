# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers of PyTorch. Imported only where the program has imported torch."""

from typing import Any, Dict, List, Tuple

import torch

from .errors import MismatchError
from .tree import Filling, Flat, Node, Regions, check_fits


def unwrapped(model: Any) -> Any:
    """The model itself, so that names do not depend on whether it runs on one rank or on many."""
    parallel = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    while isinstance(model, parallel):
        model = model.module
    return model


class Model:
    """A torch.nn.Module: its state_dict, read and filled in place."""

    def __init__(self, name: str, model: torch.nn.Module) -> None:
        self.name = name
        self.module = unwrapped(model)

    def collect(self, flat: Flat) -> Node:
        return flat.node(self.name, self.module.state_dict())

    def prepare(self, node: Node) -> Regions:
        mine = Flat()
        mine.node(self.name, self.module.state_dict())
        stored = {inner[1]: inner for inner in _arrays_of(node)}
        missing = [n for n in mine.regions if n not in stored and mine.regions[n].layout == 0]
        if missing:
            raise MismatchError(f"array {missing[0]}: the program has it, the checkpoint does not")
        for name, inner in stored.items():
            check_fits(name, inner, mine.regions.get(name))
        self._filling = Filling()
        self._filling.prepare(node, self.module.state_dict())
        return self._filling.regions

    def apply(self, node: Node, step: int) -> None:
        current = self.module.state_dict()
        state = self._filling.state(node, current)
        # The tensors are filled already; what else there is comes from get_extra_state.
        if any(not isinstance(value, torch.Tensor) for value in state.values()):
            self.module.load_state_dict(state)


def _arrays_of(node: Node) -> List[Node]:
    if node[0] == "a":
        return [node]
    inner = [n[1] for n in node[1]] if node[0] == "d" else node[1] if node[0] in "lt" else []
    return [found for child in inner for found in _arrays_of(child)]


class Optimizer:
    """A torch.optim.Optimizer. Its state is named by the parameters' names in the models.

    A restore makes state that the optimizer does not have yet, as it has none before its first
    step, and leaves the types as they were saved, which load_state_dict does not.
    """

    def __init__(
        self, name: str, optimizer: torch.optim.Optimizer, tracked: Dict[str, Any]
    ) -> None:
        self.name = name
        self.optimizer = optimizer
        self._tracked = tracked  # by the time of a save or restore, it has the models

    def _parameters(self) -> Dict[str, torch.nn.Parameter]:
        """By name; one that is in no tracked model is named by its number, as in a state_dict."""
        models = [thing for thing in self._tracked.values() if isinstance(thing, Model)]
        names = {
            id(parameter): name if len(models) == 1 else f"{model.name}.{name}"
            for model in models
            for name, parameter in model.module.named_parameters()
        }
        all_of_them = [p for group in self.optimizer.param_groups for p in group["params"]]
        return {names.get(id(p), str(i)): p for i, p in enumerate(all_of_them)}

    def collect(self, flat: Flat) -> Node:
        parameters = self._parameters()
        names = {id(p): name for name, p in parameters.items()}
        groups = [
            {**group, "params": [names[id(p)] for p in group["params"]]}
            for group in self.optimizer.param_groups
        ]
        state = {
            name: self.optimizer.state[p]
            for name, p in parameters.items()
            if self.optimizer.state.get(p)
        }
        return flat.node(self.name, {"state": state, "groups": groups})

    def prepare(self, node: Node) -> Regions:
        parameters = self._parameters()
        (_, states), (_, groups) = node[1]
        self._check_groups(groups)
        self._fillings: List[Tuple[str, Filling, Node]] = []
        regions: Regions = {}
        for name, inner in states[1]:
            filling = Filling(parameters[name].device)
            filling.prepare(inner, self.optimizer.state.get(parameters[name]))
            self._fillings.append((name, filling, inner))
            regions.update(filling.regions)
        self._groups = Filling()
        self._groups.prepare(groups, self.optimizer.param_groups)
        regions.update(self._groups.regions)
        return regions

    def _check_groups(self, groups: Node) -> None:
        # Strings are in the structure itself, so they can be read before anything is restored.
        stored = [[name[1] for name in dict(group[1])["params"][1]] for group in groups[1]]
        names = {id(p): name for name, p in self._parameters().items()}
        mine = [[names[id(p)] for p in group["params"]] for group in self.optimizer.param_groups]
        if stored != mine:
            raise MismatchError(
                f"{self.name}: the checkpoint's optimizer has other parameters or groups of them: "
                f"{_difference(stored, mine)}"
            )

    def apply(self, node: Node, step: int) -> None:
        parameters = self._parameters()
        self.optimizer.state.clear()
        for name, filling, inner in self._fillings:
            parameter = parameters[name]
            self.optimizer.state[parameter] = filling.state(inner)
        groups = self._groups.state(node[1][1][1], self.optimizer.param_groups)
        for group, stored in zip(self.optimizer.param_groups, groups):
            group.update({key: value for key, value in stored.items() if key != "params"})


def _difference(stored: List[List[str]], mine: List[List[str]]) -> str:
    flat_stored = {name for group in stored for name in group}
    flat_mine = {name for group in mine for name in group}
    only = sorted(flat_stored ^ flat_mine)
    if not only:
        return "they are in another order, or in other groups"
    whose = "the checkpoint" if only[0] in flat_stored else "the program"
    return f"{only[0]} is only in {whose}"


def _is_plain_optimizer(thing: Any) -> bool:
    """Whether its state may be read and set directly: others know best how to do that."""
    plain = torch.optim.Optimizer
    kind = type(thing)
    return (
        isinstance(thing, plain)
        and kind.load_state_dict is plain.load_state_dict
        and kind.state_dict is plain.state_dict
    )


def kind_of(name: str, thing: Any, tracked: Dict[str, Any]) -> Any:
    """How to track a model or an optimizer; None for anything else."""
    if isinstance(thing, torch.nn.Module):
        return Model(name, thing)
    if _is_plain_optimizer(thing):
        return Optimizer(name, thing, tracked)
    return None
