"""Programs that start a run on several devices: their options that take no value, and variables of the environment."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import KeyRow, nothing, uncounted
from trainledger.facts.option_row import Direction

TORCHRUN = Source("PyTorch torchrun", "torch/distributed/run.py", "2.13")
ACCELERATE = Source("accelerate launch", "accelerate/commands/launch.py", "1.15.0")
DEEPSPEED = Source("DeepSpeed launcher", "deepspeed/launcher/runner.py", "0.19.8")
ENVIRONMENT = Source("Environment variables of NCCL, PyTorch and Hugging Face", "their own manuals", "2026-08")

# Options that stand alone; every other one takes a value.
FLAGS: dict[str, frozenset[str]] = {
    "torchrun": frozenset("standalone no_python run_path h help".split()),
    "accelerate": frozenset(
        (
            "multi_gpu cpu tpu use_deepspeed use_fsdp use_parallelism_config use_megatron_lm no_python quiet "
            "same_network debug tpu_cluster no_tpu_cluster use_mps_device q tpu_use_sudo ipex dynamo_use_dynamic "
            "dynamo_use_fullgraph dynamo_use_regional_compilation enable_cpu_affinity"
        ).split()
    ),
    "deepspeed": frozenset(
        "force_multi no_python no_local_rank save_pid no_ssh no_ssh_check bind_cores_to_rank elastic_training".split()
    ),
    "python": frozenset("u O OO B E s S I q v i".split()),
}
# Options by which launchers are told how many processes to start, with underscores for dashes; then those of srun and
# mpirun, which may start launchers, one on each node.
PER_NODE = ("nproc_per_node", "num_gpus")
NODES = ("nnodes", "nodes", "N", "num_nodes", "num_machines")
PROCESSES = ("num_processes",)
TASKS_PER_NODE = ("ntasks_per_node", "gpus_per_node")
TASKS = ("ntasks", "n", "np")
MODULES = ("m", "module")  # the program is a module's name
TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic")
WRAPPERS = (
    "srun",
    "mpirun",
    "mpiexec",
    "bash",
    "sh",
    "uv",
    "poetry",
    "pdsh",
    "ray",
    "numactl",
    "nsys",
    "timeout",
    "xargs",
    "docker",
    "podman",
    "singularity",
    "apptainer",
    "enroot",
)
PYTHONS = ("python", "python3", "python3.10", "python3.11", "python3.12", "python3.13")
COMMANDS = (
    "trl",
    "swift",
    "llamafactory-cli",
    "lmf",
    "axolotl",
    "tune",
    "litgpt",
)  # programs that start a run themselves
# Programs and commands whose arguments are not Hugging Face's.
OTHERS = ("swift", "llamafactory-cli", "lmf", "axolotl", "tune", "litgpt")
OTHER_MODULES = (
    "axolotl", "llamafactory", "swift", "torchtitan", "megatron", "verl", "openrlhf", "torchtune", "litgpt",
    "pretrain_gpt", "pretrain_bert", "pretrain_t5", "pretrain_mamba", "pretrain_vlm", "pretrain_retro",
)  # fmt: skip
COUNTING = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
PREFIXES = ("NCCL_", "TORCH_", "PYTORCH_", "CUDA_", "NVTE_", "CUBLAS", "FSDP_", "ACCELERATE_", "DS_", "TORCHINDUCTOR_")
VARIABLES: tuple[KeyRow, ...] = (
    *nothing(
        ENVIRONMENT,
        (
            "NCCL_DEBUG NCCL_DEBUG_* NCCL_SOCKET_* NCCL_IB_* NCCL_NET NCCL_NET_* NCCL_P2P_* NCCL_SHM_* NCCL_TIMEOUT "
            "NCCL_CROSS_NIC NCCL_TOPO_* NCCL_TUNER_* NCCL_ASYNC_ERROR_HANDLING NCCL_BLOCKING_WAIT NCCL_LAUNCH_MODE "
            "NCCL_MIN_NCHANNELS NCCL_PXN_DISABLE NCCL_COLLNET_ENABLE NCCL_PROTO NCCL_ROOT NCCL_HOME NCCL_LIB_DIR "
            "NCCL_INCLUDE_DIR NCCL_PLUGIN_* NCCL_RAS_* NCCL_CHECKS_DISABLE NCCL_SET_* NCCL_DMABUF_ENABLE "
            "NCCL_FASTRAK_* NCCL_GPUDIRECT* NCCL_MNNVL_ENABLE NCCL_NVB_DISABLE TORCH_NCCL_ASYNC_ERROR_HANDLING "
            "TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_NCCL_ENABLE_MONITORING TORCH_NCCL_DUMP_* "
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_DESYNC_DEBUG TORCH_DISTRIBUTED_DEBUG TORCH_CPP_LOG_LEVEL "
            "TORCH_SHOW_CPP_STACKTRACES TORCH_LOGS TORCH_EXTENSIONS_DIR TORCH_HOME TORCH_CUDA_ARCH_LIST "
            "TORCH_USE_CUDA_DSA TORCH_FORCE_* TORCH_COMPILE_DEBUG TORCHINDUCTOR_CACHE_DIR "
            "TORCHINDUCTOR_FX_GRAPH_CACHE TORCHINDUCTOR_COMPILE_* CUDA_HOME CUDA_PATH CUDA_ROOT CUDA_VISIBLE_DEVICES "
            "CUDA_DEVICE_ORDER CUDA_CACHE_* CUDA_LIB* CUDA_DISABLE_* CUDA_ENABLE_* CUDA_VERSION CUDA_TOOLKIT* "
            "ACCELERATE_LOG_LEVEL ACCELERATE_DEBUG_MODE ACCELERATE_CONFIG ACCELERATE_CONFIG_FILE "
            "ACCELERATE_CPU_AFFINITY DS_SKIP_CUDA_CHECK DS_BUILD_* DS_ACCELERATOR PYTORCH_ENABLE_MPS_FALLBACK "
            "PYTORCH_JIT PYTORCH_KERNEL_CACHE_PATH PYTORCH_VERSION TORCH_DEVICE_BACKEND_AUTOLOAD"
        ).split(),
    ),
    *uncounted(
        ENVIRONMENT,
        (
            ("NCCL_NCHANNELS_PER_NET_PEER", Direction.EITHER),
            ("NCCL_MAX_CTAS", Direction.EITHER),
            ("NCCL_LL_BUFFSIZE", Direction.EITHER),
            ("NCCL_LL128_BUFFSIZE", Direction.EITHER),
            ("FSDP_*", Direction.EITHER),
            ("ACCELERATE_*", Direction.EITHER),
            ("TORCH_NCCL_USE_COMM_NONBLOCKING", Direction.EITHER),
        ),
    ),
)
