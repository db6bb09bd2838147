NGPU=8 CONFIG_FILE="./torchtitan/models/llama3/train_configs/llama3_8b.toml" ./run_train.sh \
  --training.local_batch_size=1 --training.compile --model.converters="mx" --mx.recipe_name="mxfp8_cublas"
