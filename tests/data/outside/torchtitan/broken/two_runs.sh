NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh
NGPU=8 MODULE=llama3 CONFIG=llama3_70b ./run_train.sh
