CUDA_VISIBLE_DEVICES=0,1,2,3 axolotl train full-zero2.yml
