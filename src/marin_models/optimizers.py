"""Which rule moves which group of parameters."""

from typing import Literal, NamedTuple, get_args

import attrs
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from marin_models.checks import at_least, below_one, fraction, not_negative, one_of, optional, positive
from marin_models.groups import GROUPS, Group, parameter_groups
from marin_models.hyperball import radius, step_on_sphere
from marin_models.muon import MuonScale, nesterov, orthogonalize_together, update_scale
from marin_models.newton_schulz import Coefficients, OrthogonalizationDtype
from marin_models.schedules import Schedule, ScheduleNumbers

OptimizerKind = Literal["adamw", "muon", "muonh", "adamh"]
LeafRule = Literal["adam", "adamh", "muon", "muonh"]

LEAF_RULES: dict[OptimizerKind, dict[Group, LeafRule]] = {
    "adamw": {},
    "muon": {"matrix": "muon"},
    "muonh": {"matrix": "muonh", "head": "adamh"},
    "adamh": {"matrix": "adamh", "head": "adamh"},
}
"""How each kind moves its groups; a group that is not named moves by AdamW."""

EPSILON = 1e-8


class Rule(NamedTuple):
    """What of an `OptimizerConfig` is compiled in; its attributes are described there."""

    kind: OptimizerKind
    coefficients: Coefficients = "quintic"
    orthogonalization: OrthogonalizationDtype = "bfloat16"
    scale: MuonScale = "rms"
    decayed: tuple[Group, ...] = ("matrix", "head", "router")
    schedule: Schedule = "wsd"
    query_key_clip: bool = False


@attrs.frozen
class OptimizerConfig:
    """Optimizer, learning-rate schedule and clipping of one run.

    Attributes:
        kind: ``"adamw"`` for all parameters; ``"muon"`` for matrices and AdamW for the rest; ``"muonh"``: Muon for
            matrices and Adam for the head, both on the sphere of their initial norms (see `marin_models.hyperball`),
            and AdamW for the rest; ``"adamh"``: the same with Adam for the matrices.
        learning_rate: peak learning rate of the matrices.
        adam_learning_rate: peak learning rate of everything but matrices; None: the same.
        betas: Adam's decay rates of the first and second moment.
        momentum: Muon's (Nesterov) momentum.
        weight_decay: decoupled, multiplied by the learning rate. What moves on a sphere does not decay.
        clip: largest global gradient norm; None: no clipping.
        warmup: fraction of the steps that warm up linearly.
        decay: under the schedule ``"wsd"``, the fraction of the steps, at the end, that decay.
        coefficients: of Muon's Newton–Schulz iteration (see `marin_models.newton_schulz`).
        orthogonalization: dtype of its products.
        scale: of Muon's updates (see `marin_models.muon.update_scale`).
        decayed: groups of parameters that ``weight_decay`` acts on.
        schedule: how the learning rate moves (see `marin_models.schedules.schedule_factor`).
        final: the fraction of the peak learning rate at which a decay ends.
        warmup_steps: steps that warm up, instead of ``warmup``.
        branch: ``(start, length)`` in steps, under the schedule ``"constant"`` with ``warmup_steps``: the run is the
            same as without up to step ``start``, then decays over ``length`` steps.
        average: decay per step of the exponential average of the parameters; None: none is kept.
        query_key_clip: bound on the logits of attention (MuonClip; 100 is usual): after each update, queries and keys
            of heads whose largest logit of the batch was above it are scaled back, before the average is taken (see
            `marin_models.query_key_clip.clip_attention`). For models without QK-norm, with ``"adamw"`` or ``"muon"``;
            None: nothing is measured.

    Raises:
        ValueError: naming the attribute, what was given and what is possible.
    """

    kind: OptimizerKind = attrs.field(validator=one_of(*get_args(OptimizerKind)))
    learning_rate: float = attrs.field(validator=positive)
    adam_learning_rate: float | None = attrs.field(default=None, validator=optional(positive))
    betas: tuple[float, float] = attrs.field(default=(0.9, 0.95))
    momentum: float = attrs.field(default=0.95, validator=below_one)
    weight_decay: float = attrs.field(default=0.1, validator=not_negative)
    clip: float | None = attrs.field(default=1.0, validator=optional(positive))
    warmup: float = attrs.field(default=0.05, validator=fraction)
    decay: float = attrs.field(default=0.4, validator=fraction)
    coefficients: Coefficients = attrs.field(default="quintic", validator=one_of(*get_args(Coefficients)), kw_only=True)
    orthogonalization: OrthogonalizationDtype = attrs.field(
        default="bfloat16", validator=one_of(*get_args(OrthogonalizationDtype)), kw_only=True
    )
    scale: MuonScale = attrs.field(default="rms", validator=one_of(*get_args(MuonScale)), kw_only=True)
    decayed: tuple[Group, ...] = attrs.field(default=Rule._field_defaults["decayed"], kw_only=True)
    schedule: Schedule = attrs.field(default="wsd", validator=one_of(*get_args(Schedule)), kw_only=True)
    final: float = attrs.field(default=0.0, validator=fraction, kw_only=True)
    warmup_steps: int | None = attrs.field(default=None, validator=optional(at_least(0)), kw_only=True)
    branch: tuple[int, int] | None = attrs.field(default=None, kw_only=True)
    average: float | None = attrs.field(default=None, validator=optional(below_one), kw_only=True)
    query_key_clip: float | None = attrs.field(default=None, validator=optional(positive), kw_only=True)

    @betas.validator
    def _check_betas(self, _, value):
        numbers = isinstance(value, tuple | list) and all(isinstance(beta, int | float) for beta in value)
        if not numbers or len(value) != 2 or not all(0 <= beta < 1 for beta in value):
            raise ValueError(f"OptimizerConfig: betas must be two numbers from 0 to below 1, not {value!r}")

    @decayed.validator
    def _check_decayed(self, _, value):
        if not isinstance(value, tuple) or not all(group in GROUPS for group in value):
            raise ValueError(
                f"OptimizerConfig: decayed must be a tuple of groups, which are {', '.join(map(repr, GROUPS))}; "
                f"not {value!r}"
            )

    @branch.validator
    def _check_branch(self, _, value):
        if value is None:
            return
        counts = isinstance(value, tuple | list) and len(value) == 2 and all(type(one) is int for one in value)
        if not counts or value[0] < 0 or value[1] < 1:
            raise ValueError(
                "OptimizerConfig: branch must be (start, length): the 0-based step at which the decay begins and its "
                f"number of steps, at least 1; not {value!r}"
            )
        if self.schedule != "constant" or self.warmup_steps is None:
            raise ValueError(
                f"OptimizerConfig: a branch needs schedule='constant', not {self.schedule!r}, and warmup_steps, not "
                f"{self.warmup_steps!r}: a warm-up that is a fraction of the branch's own length is not the trunk's"
            )

    @query_key_clip.validator
    def _check_query_key_clip(self, _, value):
        if value is not None and LEAF_RULES[self.kind].get("matrix") in ("adamh", "muonh"):
            raise ValueError(
                f"OptimizerConfig: query_key_clip makes queries and keys small, and kind={self.kind!r} keeps the norm "
                "of every matrix, so that its next step would undo that; choose kind='muon' or 'adamw', or leave "
                "query_key_clip out"
            )

    def __attrs_post_init__(self):
        if self.kind == "adamw" and self.adam_learning_rate is not None:
            raise ValueError(
                "OptimizerConfig: adam_learning_rate only means something beside a rule for matrices; "
                "with kind='adamw' give learning_rate"
            )
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(
                f"OptimizerConfig: warmup {self.warmup} and decay {self.decay} overlap; their sum must be at most 1"
            )

    @property
    def rule(self) -> Rule:
        """What a compiled step is made for; runs of one rule share a program."""
        clipped = self.query_key_clip is not None
        return Rule(
            self.kind, self.coefficients, self.orthogonalization, self.scale, self.decayed, self.schedule, clipped
        )


class Hyperparameters(NamedTuple):
    """The numbers of an `OptimizerConfig` as scalars that a compiled step takes as input.

    Two runs that differ only in these share one compiled program.
    """

    learning_rate: Float[Array, ""]
    adam_learning_rate: Float[Array, ""]
    beta_one: Float[Array, ""]
    beta_two: Float[Array, ""]
    momentum: Float[Array, ""]
    weight_decay: Float[Array, ""]
    clip: Float[Array, ""]
    average: Float[Array, ""]
    query_key_clip: Float[Array, ""]
    schedule: ScheduleNumbers

    @classmethod
    def of(cls, config: OptimizerConfig) -> "Hyperparameters":
        """The scalars of ``config`` in fp32; no clipping, of gradients or of logits, becomes infinity."""
        adam = config.learning_rate if config.adam_learning_rate is None else config.adam_learning_rate
        clip, logits = (float("inf") if bound is None else bound for bound in (config.clip, config.query_key_clip))
        average = 0.0 if config.average is None else config.average
        warmup_steps = -1 if config.warmup_steps is None else config.warmup_steps
        branch = (float("inf"), 1) if config.branch is None else config.branch
        schedule = ScheduleNumbers(config.warmup, warmup_steps, config.decay, config.final, *branch)
        rates = (config.learning_rate, adam, *config.betas, config.momentum, config.weight_decay)
        numbers = (*rates, clip, average, logits)
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), cls(*numbers, schedule))


class OptimizerState(NamedTuple):
    """What an optimizer remembers; each tree has the structure of the parameters.

    Attributes:
        count: steps so far.
        first: averages of the gradients.
        second: averages of their squares; None where Muon needs none.
        radius: initial norms of matrices that stay on a sphere, [*stack, 1, 1]; None elsewhere.
    """

    count: Int[Array, ""]
    first: PyTree
    second: PyTree
    radius: PyTree


class _Leaf(NamedTuple):
    """One parameter during an update."""

    rule: LeafRule
    group: Group
    parameter: Array
    gradient: Array
    first: Array
    second: Array | None
    radius: Array | None


def optimizer(
    rule: Rule | OptimizerKind, hyperparameters: Hyperparameters, factor: float | Float[Array, ""] = 1.0
) -> optax.GradientTransformation:
    """The update rule of each parameter group.

    Args:
        rule: see `OptimizerConfig.rule`; a kind alone is that kind with its defaults.
        hyperparameters: may be traced: build the rule inside the compiled step.
        factor: the schedule's factor on both learning rates at this step.

    Returns:
        A transformation for models whose parameters all carry a group; its ``init`` raises ``TypeError`` otherwise,
        and ``ValueError`` if a matrix has fewer than two axes. Clipping is not part of it (`clip_by_norm`).
    """
    settings = Rule(rule) if isinstance(rule, str) else rule

    def init(parameters: PyTree) -> OptimizerState:
        leaves, structure = jax.tree.flatten(parameters)
        rules = [_leaf_rule(settings, *pair) for pair in zip(_groups(parameters), leaves, strict=True)]
        seconds = [
            None if name.startswith("muon") else jnp.zeros_like(x) for name, x in zip(rules, leaves, strict=True)
        ]
        radii = [radius(x) if name.endswith("h") else None for name, x in zip(rules, leaves, strict=True)]
        trees = [structure.unflatten(each) for each in (map(jnp.zeros_like, leaves), seconds, radii)]
        return OptimizerState(jnp.zeros((), jnp.int32), *trees)

    def update(
        gradients: PyTree, state: OptimizerState, parameters: PyTree | None = None
    ) -> tuple[PyTree, OptimizerState]:
        if parameters is None:
            raise ValueError(
                "optimizer: update needs the parameters as its third argument; weight decay depends on them"
            )
        values, structure = jax.tree.flatten(parameters)
        groups = _groups(parameters)
        rules = [_leaf_rule(settings, *pair) for pair in zip(groups, values, strict=True)]
        columns = map(structure.flatten_up_to, (gradients, state.first, state.second, state.radius))
        leaves = [_Leaf(*row) for row in zip(rules, groups, values, *columns, strict=True)]
        count = optax.safe_increment(state.count)
        leaves = [_remember(leaf, hyperparameters) for leaf in leaves]
        directions = _directions(leaves, settings, hyperparameters, count.astype(jnp.float32))
        changes = [_change(*pair, settings, hyperparameters, factor) for pair in zip(leaves, directions, strict=True)]
        firsts, seconds = ([getattr(leaf, name) for leaf in leaves] for name in ("first", "second"))
        trees = [structure.unflatten(each) for each in (changes, firsts, seconds)]
        return trees[0], OptimizerState(count, *trees[1:], state.radius)

    return optax.GradientTransformation(init, update)


def _groups(parameters: PyTree) -> list[Group]:
    return jax.tree.leaves(parameter_groups(parameters))


def _leaf_rule(settings: Rule, group: Group, parameter: Array) -> LeafRule:
    found = LEAF_RULES[settings.kind].get(group, "adam")
    if found != "adam" and parameter.ndim < 2:
        raise ValueError(
            f"optimizer: a parameter of group {group!r} has shape {parameter.shape}, but {settings.kind!r} moves that "
            "group as matrices of two axes; declare it with another group, such as 'norm' or 'bias'"
        )
    return found


def _remember(leaf: _Leaf, h: Hyperparameters) -> _Leaf:
    decay = h.momentum if leaf.rule.startswith("muon") else h.beta_one
    first = decay * leaf.first + (1 - decay) * leaf.gradient
    if leaf.second is None:
        return leaf._replace(first=first)
    return leaf._replace(first=first, second=h.beta_two * leaf.second + (1 - h.beta_two) * jnp.square(leaf.gradient))


def _directions(leaves: list[_Leaf], settings: Rule, h: Hyperparameters, count: Array) -> list[Array]:
    """Where each parameter would go at a learning rate of one, without weight decay."""
    muon = [index for index, leaf in enumerate(leaves) if leaf.rule.startswith("muon")]
    ahead = [nesterov(leaves[index].gradient, leaves[index].first, h.momentum, count) for index in muon]
    orthogonal = orthogonalize_together(ahead, coefficients=settings.coefficients, dtype=settings.orthogonalization)
    found = dict(zip(muon, orthogonal, strict=True))
    return [
        found[index].astype(jnp.float32) if index in found else _adam_direction(leaf, h, count)
        for index, leaf in enumerate(leaves)
    ]


def _adam_direction(leaf: _Leaf, h: Hyperparameters, count: Array) -> Array:
    mean = leaf.first / (1 - h.beta_one**count)
    return mean / (jnp.sqrt(leaf.second / (1 - h.beta_two**count)) + EPSILON)


def _change(
    leaf: _Leaf, direction: Array, settings: Rule, h: Hyperparameters, factor: float | Float[Array, ""]
) -> Array:
    rate = factor * (h.learning_rate if leaf.group == "matrix" else h.adam_learning_rate)
    if leaf.radius is not None:
        return step_on_sphere(leaf.parameter, direction, rate, leaf.radius)
    if leaf.rule == "muon":
        direction = update_scale(settings.scale, *leaf.parameter.shape[-2:]) * direction
    if leaf.group in settings.decayed:
        direction = direction + h.weight_decay * leaf.parameter
    return -rate * direction


def clip_by_norm(gradients: PyTree, largest: float | Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
    """The gradients, scaled down if their global norm is above ``largest``, and that norm before clipping."""
    norm = optax.tree.norm(gradients)
    scale = jnp.minimum(1.0, largest / norm)
    return jax.tree.map(lambda gradient: gradient * scale, gradients), norm
