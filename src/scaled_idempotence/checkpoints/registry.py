"""The paper's models on the hub: short names, shapes, and the revisions of training lineages."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..linalg.factors import topology as topology_of
from .bundled import cache_folder


@dataclass(frozen=True)
class HubModel:
    """A model of the paper.

    Parameters
    ----------
    name : str
        Short name, which `open_model` takes.
    repo : str
        ``org/name`` on the hub.
    n_layers, n_heads, n_value_heads, d_head, d_model : int
    """

    name: str
    repo: str
    n_layers: int
    n_heads: int
    n_value_heads: int
    d_head: int
    d_model: int

    @property
    def topology(self) -> str:
        """MHA, GQA or MQA."""
        return topology_of(self.n_heads, self.n_value_heads)

    @property
    def description(self) -> str:
        """Topology and shape, for listings."""
        return (
            f"{self.repo}, {self.topology}, {self.n_layers} layers, "
            f"{self.n_heads}/{self.n_value_heads} heads, r={self.d_head}, d={self.d_model}"
        )


class Step(NamedTuple):
    """What a revision's name says; sorts as training went."""

    stage: int
    step: int
    revision: str


@dataclass(frozen=True)
class PublicLineage:
    """Repositories whose revisions are steps of one training run.

    Parameters
    ----------
    repos : tuple of str
        Patterns of ``org/name``.
    revisions : str
        What the revisions are called, for people.
    pattern : str
        The same as a regular expression that fits the whole name, with a group ``step``, and
        ``stage`` where there are several. Names that do not fit are no steps of the run.
    step_size : int
        What one unit of the number in the name is worth.
    stages_restart : bool
        Whether each stage counts its steps from 0.
    repo_steps : tuple of (int, str)
        Steps that have a repository each, in place of revisions.
    remark : str
        What to know before trusting them.
    """

    repos: tuple[str, ...]
    revisions: str
    pattern: str
    step_size: int = 1
    stages_restart: bool = False
    repo_steps: tuple[tuple[int, str], ...] = ()
    remark: str = ""

    def parse(self, revision: str) -> Step | None:
        """Read a revision's name.

        Parameters
        ----------
        revision : str

        Returns
        -------
        Step or None

        Examples
        --------
        >>> lineage_of("allenai/OLMo-2-1124-7B").parse("stage1-step1000-tokens5B")
        Step(stage=1, step=1000, revision='stage1-step1000-tokens5B')
        """
        found = re.fullmatch(self.pattern, revision)
        if not found:
            return None
        groups = found.groupdict()
        return Step(int(groups.get("stage") or 1), int(groups["step"]) * self.step_size, revision)

    def order(self, revisions: Iterable[str]) -> list[tuple[int, str]]:
        """Put revisions in the order of training.

        Parameters
        ----------
        revisions : iterable of str
            All names that the repository has.

        Returns
        -------
        list of (int, str)
            Steps, counted through all stages, and revisions; the first name of each step. Names
            that are no steps are left out.

        Examples
        --------
        >>> lineage_of("EleutherAI/pythia-70m").order(["main", "step8", "step1000", "step0"])
        [(0, 'step0'), (8, 'step8'), (1000, 'step1000')]
        """
        parsed = sorted(step for name in revisions if (step := self.parse(name)))
        ordered: list[tuple[int, str]] = []
        offset = last = 0
        for before, step in zip([None, *parsed], parsed, strict=False):
            if before is not None and step.stage != before.stage and self.stages_restart:
                offset = last
            if not ordered or offset + step.step > last:
                last = offset + step.step
                ordered.append((last, step.revision))
        return ordered


_MODELS = (
    HubModel("pythia-2.8b-deduped", "EleutherAI/pythia-2.8b-deduped", 32, 32, 32, 80, 2560),
    HubModel("qwen3-4b", "Qwen/Qwen3-4B-Base", 36, 32, 8, 128, 2560),
    HubModel("mistral-7b", "mistralai/Mistral-7B-v0.3", 32, 32, 8, 128, 4096),
    HubModel("olmo-2-13b", "allenai/OLMo-2-1124-13B", 40, 40, 40, 128, 5120),
    HubModel("qwen2.5-72b", "Qwen/Qwen2.5-72B", 80, 64, 8, 128, 8192),
    HubModel("qwen3-235b", "Qwen/Qwen3-235B-A22B", 94, 64, 4, 128, 4096),
    HubModel("olmo-1b", "allenai/OLMo-1B-hf", 16, 16, 16, 128, 2048),
    HubModel(
        "tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", 22, 32, 4, 64, 2048
    ),
    HubModel("smollm3-3b", "HuggingFaceTB/SmolLM3-3B", 36, 16, 4, 128, 2048),
    HubModel("granite-3.3-2b", "ibm-granite/granite-3.3-2b-base", 40, 32, 8, 64, 2048),
    HubModel("falcon3-3b", "tiiuae/Falcon3-3B-Base", 22, 12, 4, 256, 3072),
    HubModel("yi-1.5-6b", "01-ai/Yi-1.5-6B", 32, 32, 4, 128, 4096),
)

#: Every model of the paper by its short name.
MODELS: dict[str, HubModel] = {model.name: model for model in _MODELS}

LINEAGES: tuple[PublicLineage, ...] = (
    PublicLineage(
        ("EleutherAI/pythia-*",),
        "step0, step1, step2, step4, ... step512, step1000, step2000, ... step143000",
        r"step(?P<step>\d+)",
        remark="step0 equals step1 in all sizes; many step branches of pythia-2.8b, and single "
        "shards of pythia-12b's, were reported to serve the final weights",
    ),
    PublicLineage(
        ("allenai/OLMo-1B-hf", "allenai/OLMo-7B-hf"),
        "stepN-tokensMB, such as step5000-tokens21B",
        r"step(?P<step>\d+)-tokens\d+B",
    ),
    PublicLineage(
        ("allenai/OLMo-2-0425-1B", "allenai/OLMo-2-1124-7B", "allenai/OLMo-2-1124-13B"),
        "stage1-stepN-tokensMB, then stage2-ingredientK-stepN-tokensMB",
        # Ingredients are runs beside each other, of which a lineage can follow one.
        r"(?:stage(?P<stage>\d+)-)?(?:ingredient1-)?step(?P<step>\d+)-tokens\d+B",
        stages_restart=True,
        remark="some branches of the 7B lack stage1-; of the second stage, ingredient1 is followed",
    ),
    PublicLineage(
        ("TinyLlama/tinyLlama-intermediate-checkpoints*",),
        "step-Nk-token-MB such as step-720k-token-1510B",
        r"step-(?P<step>\d+)k-token-\d+B",
        step_size=1000,
        remark=".bin only",
    ),
    PublicLineage(
        ("TinyLlama/TinyLlama-1.1B-*step-*",),
        "one repository a step",
        r"(?!)",
        repo_steps=(
            (50_000, "TinyLlama/TinyLlama-1.1B-step-50K-105b"),
            (240_000, "TinyLlama/TinyLlama-1.1B-intermediate-step-240k-503b"),
            (480_000, "TinyLlama/TinyLlama-1.1B-intermediate-step-480k-1T"),
            (715_000, "TinyLlama/TinyLlama-1.1B-intermediate-step-715k-1.5T"),
            (955_000, "TinyLlama/TinyLlama-1.1B-intermediate-step-955k-token-2T"),
            (1_195_000, "TinyLlama/TinyLlama-1.1B-intermediate-step-1195k-token-2.5T"),
            (1_431_000, "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"),
        ),
        remark="intermediate steps are .bin only",
    ),
    PublicLineage(
        ("HuggingFaceTB/SmolLM3-3B-checkpoints",),
        "every 40,000 steps: stage1-step-40000 and so on",
        r"stage(?P<stage>\d+)-step-(?P<step>\d+)",
    ),
    PublicLineage(("LLM360/Amber",), "ckpt_000, ckpt_001, ... ckpt_358", r"ckpt_(?P<step>\d+)"),
    PublicLineage(
        ("swiss-ai/Apertus-8B-2509",),
        "stepN-tokensMB, such as step50000-tokens210B",
        r"step(?P<step>\d+)-tokens\d+B",
    ),
)


def lineage_of(repo: str) -> PublicLineage | None:
    """Find the lineage that a repository holds.

    Parameters
    ----------
    repo : str
        ``org/name``, whatever the revision.

    Returns
    -------
    PublicLineage or None

    Examples
    --------
    >>> lineage_of("LLM360/Amber").revisions
    'ckpt_000, ckpt_001, ... ckpt_358'
    """
    patterns = ((pattern, lineage) for lineage in LINEAGES for pattern in lineage.repos)
    return next((one for pattern, one in patterns if fnmatch.fnmatchcase(repo, pattern)), None)


def short_name(repo: str) -> str:
    """Name a repository so that it can be a folder.

    Parameters
    ----------
    repo : str
        ``org/name``, of the paper or not.

    Returns
    -------
    str
        The short name of the paper's models, else ``org--name``.

    Examples
    --------
    >>> short_name("Qwen/Qwen3-235B-A22B"), short_name("someone/model")
    ('qwen3-235b', 'someone--model')
    """
    names = {model.repo: model.name for model in MODELS.values()}
    return names.get(repo, repo.replace("/", "--"))


def repo_folder(repo: str) -> Path:
    """Folder of the cache for a repository.

    Parameters
    ----------
    repo : str
        ``org/name`` on the hub.

    Returns
    -------
    Path
        Whether it is there or not.
    """
    return cache_folder() / "hub" / repo.replace("/", "--")
