"""Texts that all lessons share."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "section": ("Learn", "学习"),
    "question": ("The question this answers", "它回答的问题"),
    "try": ("Try this", "试一试"),
    "predicted": (
        "Times are predicted for {hardware}; no device was used. Errors are computed here, with real arithmetic.",
        "时间为 {hardware} 的预测，未使用设备；误差在此真实计算。",
    ),
    "predicted_only": ("Predicted for {hardware}; no device was used.", "{hardware} 的预测，未使用设备。"),
    "model": ("Model", "模型"),
    "hardware": ("Chip", "芯片"),
    "refused": ("This combination is refused: {why}", "该组合被拒绝：{why}"),
}
