"""Keys of an adapter's configuration and of a model's quantisation, and the plan's words for them."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import KeyRow, nothing, read

PEFT = Source("PEFT adapter_config.json", "peft/config.py, peft/tuners/*/config.py", "0.21.2")
QUANT = Source("Transformers quantization_config", "transformers/utils/quantization_config.py", "5.24.0")

ADAPTER_KINDS: dict[str, str] = {
    "LORA": "lora", "ADALORA": "adalora", "IA3": "ia3", "VERA": "vera", "LOHA": "loha", "LOKR": "lokr", "OFT": "oft",
    "BOFT": "boft", "PREFIX_TUNING": "prefix-tuning", "PROMPT_TUNING": "prompt-tuning", "P_TUNING": "p-tuning",
    "LN_TUNING": "ln-tuning", "FOURIERFT": "fourierft", "TRAINABLE_TOKENS": "trainable-tokens",
}  # fmt: skip
# Options of a method that the plan takes under PEFT's own names.
ADAPTER_OPTIONS = (
    "layers_to_transform rank_pattern exclude_modules init_r num_virtual_tokens num_transformer_submodules "
    "encoder_hidden_size prefix_projection encoder_reparameterization_type token_indices trainable_token_indices "
    "boft_block_size boft_block_num boft_n_butterfly_factor oft_block_size block_share decompose_factor "
    "decompose_both n_frequency feedforward_modules layers_pattern target_parameters token_dim num_layers "
    "encoder_num_layers encoder_dropout boft_dropout module_dropout coft use_effective_conv2d rank_dropout "
    "vera_dropout"
).split()
ADAPTER_KEYS: tuple[KeyRow, ...] = (
    *read(
        PEFT,
        (
            "peft_type base_model_name_or_path r target_modules lora_dropout modules_to_save use_dora bias lora_bias"
        ).split(),
    ),
    *read(PEFT, ADAPTER_OPTIONS),
    *nothing(
        PEFT,
        (
            "auto_mapping base_model_class revision inference_mode task_type lora_alpha alpha use_rslora "
            "init_lora_weights init_weights fan_in_fan_out alpha_pattern target_r tinit tfinal deltaT beta1 beta2 "
            "orth_reg_weight total_step megatron_config megatron_core qalora_group_size use_qalora corda_config "
            "eva_config loftq_config lora_ga_config runtime_config peft_version projection_prng_key save_projection "
            "d_initial scaling prompt_tuning_init prompt_tuning_init_text tokenizer_name_or_path tokenizer_kwargs "
            "num_attention_heads layer_replication ensure_weight_tying random_loc_seed ifft2_norm "
            "n_frequency_pattern alora_invocation_tokens use_bdlora arrow_config"
        ).split(),
    ),
)
# quant_method and bits (0: it has one), by the plan's word.
QUANT_METHODS: dict[tuple[str, int], str] = {
    ("gptq", 4): "gptq4", ("gptq", 8): "gptq8", ("awq", 4): "awq4", ("fp8", 0): "fp8", ("fbgemm_fp8", 0): "fp8",
    ("mxfp4", 0): "mxfp4",
}  # fmt: skip
GROUPED = ("gptq4", "gptq8", "awq4")
SAFE = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}
SAFE_SOURCE = Source("safetensors format", "docs: safetensors, header", "2024")
HEADER = 8  # bytes of a safetensors file that hold the length of its header
