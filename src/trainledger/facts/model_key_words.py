"""Words for a model's keys: sizes of config.json under the names of other code, and keys that set no size."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.names import Names


@dataclass(frozen=True, slots=True)
class Meant:
    """Words that mean one size of a model; each config class reads one of them, or two."""

    words: tuple[str, ...]
    source: Source


_ELSEWHERE = Source(
    "One size of a model under the names of several codes",
    "config classes of Transformers; litgpt/config.py; model arguments of torchtitan, torchtune and Megatron-LM",
    "5.24.0; 2026-08",
)


def _meant(words: str) -> Meant:
    return Meant(tuple(words.split()), _ELSEWHERE)


MEANT: tuple[Meant, ...] = (
    _meant("num_hidden_layers n_layer n_layers num_layer num_layers layers nlayers num_blocks n_blocks depth"),
    _meant("hidden_size n_embd d_model dim hidden embed_dim embedding_dim model_dim"),
    _meant("num_attention_heads n_head n_heads num_heads heads attention_heads"),
    _meant("num_key_value_heads n_kv_heads num_kv_heads kv_heads n_query_groups num_query_groups num_heads_kv"),
    _meant("head_dim head_size kv_channels d_head d_kv"),
    _meant("intermediate_size ffn_hidden_size ffn_dim n_inner ffn mlp_dim intermediate_dim intermediate d_ff"),
    _meant("vocab_size vocab vocabulary vocabulary_size n_vocab vocab_len padded_vocab_size"),
    _meant("num_experts num_local_experts n_routed_experts n_experts experts num_moe_experts n_expert"),
    _meant("num_experts_per_tok num_experts_per_token experts_per_token n_expert_per_token moe_router_topk moe_top_k"),
    _meant("moe_intermediate_size moe_ffn_hidden_size moe_hidden_dim expert_hidden_size"),
    _meant("tie_word_embeddings tie_embeddings tied_embeddings tied weight_tying tie_weights"),
)

NOTHING = Names(
    tuple(
        (
            "name transformers_version return_dict chunk_size_feed_forward is_encoder_decoder is_decoder id2label "
            "label2id problem_type pad_token_id bos_token_id eos_token_id output_attentions output_hidden_states "
            "use_cache auto_map torchscript initializer_range init_std initializer_factor rope_parameters "
            "rope_scaling rope_theta rope_local_base_freq partial_rotary_factor original_max_position_embeddings "
            "max_position_embeddings n_positions n_ctx rms_norm_eps layer_norm_eps layer_norm_epsilon "
            "norm_epsilon norm_eps norm_topk_prob router_aux_loss_coef aux_loss_alpha seq_aux "
            "output_router_logits router_jitter_noise scoring_func topk_group topk_method n_group ep_size "
            "routed_scaling_factor pretraining_tp classifier_dropout hidden_act hidden_activation "
            "activation_function scale_attn_weights scale_attn_by_inverse_layer_idx "
            "scale_attention_softmax_in_fp32 attention_softmax_in_fp32 query_pre_attn_scalar logit_scale "
            "logits_scaling attention_multiplier embedding_multiplier residual_multiplier qk_head_dim "
            "swiglu_alpha swiglu_limit no_rope_layers no_rope_layer_interval attention_chunk_size layer_types "
            "attn_temperature_tuning floor_scale attn_scale attn_logit_softcapping final_logit_softcapping "
            "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
            "qa_dropout seq_classif_dropout attention_dropout attn_pdrop embd_pdrop resid_pdrop hidden_dropout "
            "sliding_window use_sliding_window max_window_layers sliding_window_pattern layerdrop "
            "do_layer_norm_before gradient_checkpointing unsloth_version use_qk_norm torch_dtype dtype "
            "architectures quantization_config model_type"
        ).split()
    ),
    Source("Keys of config.json that set no size", "transformers/models/*/configuration_*.py", "4.36 to 5.24.0"),
)
