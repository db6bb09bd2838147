"""Options of the optimizer and of the adapter: `optimizer.options`, `adapter.options`."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.option_row import Direction, Kind, Row, counted, harmless, uncounted
from trainledger.facts.torchao_offload import FREED, HOST_STEP, SMALLEST

OPTIMIZER, ADAPTER = "optimizer.options", "adapter.options"
BOOL, COUNT, NUMBER, TEXT, TEXTS = Kind.BOOL, Kind.COUNT, Kind.NUMBER, Kind.TEXT, Kind.TEXTS
LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER

TORCH_OPTIM = Source("PyTorch optimizers", "docs: torch.optim", "2.13")
ADAFACTOR = Source("Transformers Adafactor", "transformers/optimization.py, class Adafactor", "5.24.0")
GALORE = Source("GaLore", "arXiv:2403.03507, section 4", "2024-03")
MUON = Source("PyTorch Muon", "torch/optim/_muon.py", "2.13")
BNB = Source("bitsandbytes optimizers", "bitsandbytes/optim/optimizer.py", "0.43.3")
APOLLO = Source("APOLLO", "arXiv:2412.05270, section 4", "2024-12")
PEFT = Source("PEFT adapter configurations", "peft/tuners/*/config.py", "0.21.2")

TRAINING_ROWS: tuple[Row, ...] = (
    *counted(OPTIMIZER, ADAFACTOR, (("relative_step", BOOL), ("scale_parameter", BOOL))),
    *harmless(
        OPTIMIZER,
        ADAFACTOR,
        (
            ("warmup_init", BOOL),
            ("clip_threshold", NUMBER),
            ("decay_rate", NUMBER),
        ),
    ),
    *uncounted(OPTIMIZER, ADAFACTOR, (("beta1", NUMBER, LOW),)),
    *harmless(
        OPTIMIZER,
        TORCH_OPTIM,
        (
            ("lr", NUMBER),
            ("betas", Kind.ANY),
            ("eps", Kind.ANY),
            ("dampening", NUMBER),
            ("momentum_decay", NUMBER),
        ),
    ),
    *uncounted(
        OPTIMIZER,
        TORCH_OPTIM,
        (
            ("weight_decay", NUMBER, LOW),  # where it is added to the gradient, the sum is a new tensor
            ("nesterov", BOOL, LOW),
            ("maximize", BOOL, LOW),
            ("amsgrad", BOOL, LOW),
            ("centered", BOOL, LOW),
            ("capturable", BOOL, LOW),
            ("differentiable", BOOL, LOW),
            ("momentum", NUMBER, LOW),
        ),
    ),
    *counted(OPTIMIZER, HOST_STEP.source, ((FREED, BOOL), (SMALLEST, COUNT))),
    *harmless(OPTIMIZER, MUON, (("ns_coefficients", Kind.ANY), ("adjust_lr_fn", TEXT))),
    *uncounted(
        OPTIMIZER,
        MUON,
        (
            ("ns_steps", COUNT, EITHER),
            ("adamw_modules", TEXTS, EITHER),
            ("muon_modules", TEXTS, EITHER),
            ("muon_scalar_optimizer", TEXT, EITHER),
            ("muon_split_qkv", BOOL, EITHER),
            ("muon_tp_mode", TEXT, EITHER),
        ),
    ),
    *uncounted(
        OPTIMIZER,
        GALORE,
        (
            ("rank", COUNT, EITHER),
            ("update_proj_gap", COUNT, EITHER),
            ("scale", NUMBER, EITHER),
            ("proj_type", TEXT, EITHER),
            ("target_modules", TEXTS, EITHER),
        ),
    ),
    *uncounted(OPTIMIZER, APOLLO, (("proj", TEXT, EITHER), ("scale_type", TEXT, EITHER))),
    *uncounted(
        OPTIMIZER,
        BNB,
        (
            ("min_8bit_size", COUNT, EITHER),
            ("block_wise", BOOL, EITHER),
            ("percentile_clipping", COUNT, LOW),
            ("optim_bits", COUNT, EITHER),
        ),
    ),
    *counted(
        ADAPTER,
        PEFT,
        (
            ("bias", TEXT),
            ("lora_bias", BOOL),
            ("layers_to_transform", Kind.ANY),
            ("rank_pattern", Kind.ANY),
            ("exclude_modules", Kind.ANY),
            ("autocast_adapter_dtype", BOOL),
            ("init_r", COUNT),
            ("num_virtual_tokens", COUNT),
            ("num_transformer_submodules", COUNT),
            ("encoder_hidden_size", COUNT),
            ("prefix_projection", BOOL),
            ("encoder_reparameterization_type", TEXT),
            ("token_indices", Kind.COUNTS),
            ("trainable_token_indices", Kind.ANY),
            ("boft_block_size", COUNT),
            ("boft_block_num", COUNT),
            ("boft_n_butterfly_factor", COUNT),
            ("oft_block_size", COUNT),
            ("block_share", BOOL),
            ("decompose_factor", NUMBER),
            ("decompose_both", BOOL),
            ("n_frequency", COUNT),
            ("feedforward_modules", TEXTS),
            ("target_parameters", TEXTS),
            ("alpha_pattern", Kind.ANY),
            ("lora_alpha", NUMBER),
            ("use_rslora", BOOL),
        ),
    ),
    *harmless(
        ADAPTER,
        PEFT,
        (
            ("alpha", NUMBER),
            ("init_weights", Kind.ANY),
            ("target_r", COUNT),  # masked, not made smaller
            ("scaling", NUMBER),
            ("fan_in_fan_out", BOOL),
            ("projection_prng_key", COUNT),
            ("save_projection", BOOL),
            ("d_initial", NUMBER),
            ("prompt_tuning_init", TEXT),
            ("prompt_tuning_init_text", TEXT),
        ),
    ),
    *uncounted(
        ADAPTER,
        PEFT,
        (
            ("layers_pattern", Kind.ANY, HIGH),
            ("init_lora_weights", Kind.ANY, EITHER),
            ("token_dim", COUNT, EITHER),
            ("num_layers", COUNT, EITHER),
            ("encoder_num_layers", COUNT, EITHER),
            ("encoder_dropout", NUMBER, EITHER),
            ("boft_dropout", NUMBER, EITHER),
            ("module_dropout", NUMBER, EITHER),
            ("coft", BOOL, EITHER),
            ("use_cayley_neumann", BOOL, EITHER),
            ("num_cayley_neumann_terms", COUNT, EITHER),
            ("use_effective_conv2d", BOOL, EITHER),
            ("rank_dropout", NUMBER, EITHER),
            ("n_frequency_pattern", Kind.ANY, EITHER),
            ("vera_dropout", NUMBER, EITHER),
        ),
    ),
)
