"""Settings that take one of a few words, and which. No imports: help and completion read this too."""

VALUES = {
    "decode.context": ("block", "causal", "causal_cache", "causal_draft", "causal_published", "full"),
    "decode.boundary": ("verified", "published"),
    "decode.cache": ("none", "prefix", "dual"),
    "decode.commit": ("pending", "separate"),
    "device": ("auto", "cpu", "cuda"),  # cuda:1 too
    "draft_device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "backend": ("eager",),
}

# families of models that attend fully; decode.context=full is theirs, and theirs alone
FULL_ATTENTION = ("dream", "llada")
# families whose prompt attends to itself fully, while the answer attends by block
WHOLE_PROMPT = ("d2f_dream", "d2f_llada")
# families that score a token by the row left of it, not by the one at its position
RIGHT_SHIFTED = ("fast_dllm_v2", "dream", "d2f_dream")
# families whose blocks are counted from the prompt's end
FROM_PROMPT = (*FULL_ATTENTION, *WHOLE_PROMPT)
