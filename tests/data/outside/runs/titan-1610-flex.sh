NGPU=8 CONFIG_FILE="./torchtitan/models/deepseek_v3/train_configs/deepseek_v3_16b.toml" ./run_train.sh \
  --training.local_batch_size=8 --activation_checkpoint.mode full --compile.enable=false
