"""Our decoders as a model of lm-evaluation-harness (extra `lm-eval`): any task of it that generates text can be run.

python -m s2d2cli.lm_eval --model s2d2 --model_args model=tiny,decoder=s2d2,decode.block_length=16 --tasks gsm8k

lm-eval 0.4 has no plug-ins for models, so its plain command does not know the name `s2d2`. The command above registers
it and hands over to lm-eval's own command line. In Python, importing `s2d2cli.lm_eval.model` does the same.
"""
