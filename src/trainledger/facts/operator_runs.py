"""How published benchmarks of single operators measure: what their process holds besides the operator."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Harness:
    """A benchmark of one operator by the peak of a later repetition, whose inputs have gradients already.

    `modules`: copies of the operator's weights that the process holds (one of each implementation). `retains`: the
    graph is kept through backward. `returns`: gradients are returned (torch.autograd.grad), not accumulated.
    `architecture`: of the card it ran on, where its records name none. `modes`: a forward alone is measured in a
    process that never made a gradient; otherwise every row is of forward and backward, whatever it is called.
    `single`: the peak is kept as MiB in a float32 tensor, and printed from it. `warm`: the script measured speed at
    every size first, so that blocks are cut from larger cached ones; otherwise large ones fill segments of their own.
    `more`: the release from which on the process holds one module more.
    """

    modules: int
    retains: bool
    source: Source
    returns: bool = False
    architecture: str = ""
    modes: bool = False
    single: bool = True
    warm: bool = False
    more: str = ""


def _liger(name: str, read: bool = False) -> Source:
    """`read`: the script is known; otherwise its set-up is inferred from the sizes that it measured."""
    how = "" if read else ", set-up inferred from its measurements"
    return Source("Liger-Kernel benchmarks", f"benchmark/scripts/benchmark_{name}.py{how}", "0.2.1 to 0.8.0")


HARNESSES: dict[str, Harness] = {
    "cross_entropy": Harness(0, False, _liger("cross_entropy", True)),
    "rms_norm": Harness(2, True, _liger("rms_norm", True)),
    "fused_add_rms_norm": Harness(4, False, _liger("fused_add_rms_norm", True)),
    "layer_norm": Harness(2, True, _liger("layer_norm", True)),
    "group_norm": Harness(2, True, _liger("group_norm", True)),
    "embedding": Harness(2, False, _liger("embedding", True)),
    "sparsemax": Harness(0, True, _liger("sparsemax", True)),
    "sparse_multi_token_attention": Harness(2, True, _liger("sparse_multi_token_attention", True)),
    "fused_neighborhood_attention": Harness(2, True, _liger("fused_neighborhood_attention", True)),
    "rope": Harness(0, True, _liger("rope", True), True),
    "swiglu": Harness(1, True, _liger("swiglu")),
    "geglu": Harness(1, True, _liger("geglu", True), modes=True),
    "tiled_swiglu": Harness(1, True, _liger("tiled_mlp", True), modes=True),
    "tiled_geglu": Harness(1, True, _liger("tiled_mlp", True), modes=True),
    "relu_squared": Harness(0, True, _liger("relu_squared", True), modes=True),
    "llama4_rope": Harness(0, True, _liger("llama4_rope", True), True),
    "megatron_rms_norm": Harness(1, False, _liger("megatron_rms_norm", True)),
    "fused_moe": Harness(1, True, _liger("fused_moe", True), modes=True),
    "megatron_swiglu": Harness(0, False, _liger("megatron_swiglu", True)),
    # from 0.6.2 on there is one that accumulates in fp32 as well
    "fused_linear_cross_entropy": Harness(2, False, _liger("fused_linear_cross_entropy"), warm=True, more="0.6.2"),
    "linear_cross_entropy": Harness(
        0,
        False,
        Source(
            "Apple ml-cross-entropy; XTuner",
            "benchmark/memory.py; docs/en/pretrain_sft/advanced_tutorial/loss.md, whose card is inferred from the "
            "workspaces in both its numbers",
            "d42911f9b1; 7855e18b7",
        ),
        architecture="sm90",
        single=False,
    ),
    "kl_div": Harness(0, True, _liger("kl_div", True)),
    "jsd": Harness(0, True, _liger("jsd", True)),
    "tvd": Harness(0, True, _liger("tvd", True)),
    "softmax": Harness(0, True, _liger("softmax", True)),
    "megatron_cross_entropy": Harness(0, False, _liger("megatron_cross_entropy", True)),
    # both modules share their weights' storage
    "fused_linear_jsd": Harness(1, False, _liger("fused_linear_jsd", True), warm=True),
    "fused_linear_orpo_loss": Harness(2, False, _liger("orpo_loss", True), warm=True),
    "fused_linear_cpo_loss": Harness(2, False, _liger("cpo_loss", True), warm=True),
    "fused_linear_simpo_loss": Harness(2, False, _liger("simpo_loss", True), warm=True),
    "distill_jsd_loss": Harness(2, False, _liger("distill_jsd_loss", True), warm=True),
    "fused_linear_grpo_loss_token": Harness(2, False, _liger("grpo_loss", True)),
    "fused_linear_grpo_loss_sequence": Harness(2, False, _liger("grpo_loss", True)),
    "distill_cosine_loss": Harness(2, False, _liger("distill_cosine_loss", True)),
    "kto_loss": Harness(2, False, _liger("kto_loss", True), warm=True),
}
