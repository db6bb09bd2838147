NGPU=8 MODULE=llama3 CONFIG=llama3_80b ./run_train.sh
