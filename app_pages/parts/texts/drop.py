"""Texts of the place where readers drop files of their own."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "files": ("Your files", "我的文件"),
    "files_help": (
        "A scenario, a model's config.json, a hardware or an engine profile of your own.",
        "你自己的场景、模型 config.json、硬件或引擎参数文件。",
    ),
    "about": (
        "Drop or paste a scenario (YAML), a model's config.json, a hardware or an engine profile (YAML): it can then be chosen wherever a shipped name can. Nothing leaves this machine, and nothing stays when the lab ends.",
        "拖入或粘贴场景（YAML）、模型的 config.json、硬件或引擎参数文件（YAML）：之后在所有可选内置名称的地方都能选它。文件不离开本机，实验台结束后不保留。",
    ),
    "upload": ("Files", "文件"),
    "folder": ("A folder", "文件夹"),
    "folder_help": (
        "A model's folder (config.json, with quant_model_description.json where there is one; no weights are read), or scenarios and profiles that name one another.",
        "模型文件夹（config.json，以及可能有的 quant_model_description.json；不读取权重），或互相引用的场景与参数文件。",
    ),
    "paste": ("Or paste the text", "或粘贴文本"),
    "add": ("Add the pasted text", "添加粘贴的文本"),
    "open": ("Open", "打开"),
    "scenario": ("scenario", "场景"),
    "model": ("model", "模型"),
    "hardware": ("hardware profile", "硬件参数"),
    "engine": ("engine profile", "引擎参数"),
}
