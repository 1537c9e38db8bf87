"""Texts that all lessons share."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "section": ("Learn", "学习"),
    "question": ("The question", "问题"),
    "guess_first": ("Guess first.", "先猜一猜。"),
    "show": ("Show me", "直接看答案"),
    "right": ("Right.", "猜对了。"),
    "not_quite": ("Not quite.", "不太对。"),
    "the_answer": ("The answer.", "答案。"),
    "formula": ("The formula, with your numbers", "公式，代入你的数字"),
    "measured": ("Measured on Ascend", "昇腾实测"),
    "limit": ("A limit of the model", "模型的局限"),
    "in_lab": ("Open this state in the Lab", "在实验台中打开此状态"),
    "try": ("Try this", "试一试"),
    "predicted": (
        "Times are predicted for {hardware}; no device was used. Errors are computed here, with real arithmetic.",
        "时间为 {hardware} 的预测，未使用设备；误差在此真实计算。",
    ),
    "predicted_only": ("Predicted for {hardware}; no device was used.", "{hardware} 的预测，未使用设备。"),
    "comma": (", ", "，"),
    "verdict_gain": ("faster", "更快"),
    "verdict_loss": ("slower", "更慢"),
    "verdict_not distinguishable": ("not distinguishable", "无法区分"),
    "verdict_no effect": ("no effect", "无效果"),
    "not_distinguishable": ("not distinguishable", "无法区分"),
    "model": ("Model", "模型"),
    "hardware": ("Chip", "芯片"),
    "refused": ("This combination is refused: {why}", "该组合被拒绝：{why}"),
}
