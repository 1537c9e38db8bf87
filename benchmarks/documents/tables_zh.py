"""The README's tables in Chinese: the same computed rows with other words.

`python -m benchmarks.documents.tables_zh` prints them.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.documents.tables import accuracy_rows, dies_rows, gain_rows

#: What is said in the tables, the longest first, so that no part of a phrase is taken for another.
WORDS = {
    "profiles of Qwen3-32B, DeepSeek-V3 (A3 die), Qwen3-8B (910B2, A3 die) and TorchAir models (910B2)": (
        "Qwen3-32B、DeepSeek-V3（A3 单 die）、Qwen3-8B（910B2、A3 单 die）与 TorchAir 模型（910B2）的 profile"
    ),
    "Qwen3-8B, 0.6B and Reranker on 910B2, an MLP on an A3 die, two MoE models on 910B3 pairs": (
        "910B2 上的 Qwen3-8B、0.6B 与 Reranker，A3 单 die 上的一个 MLP，两卡 910B3 上的两个 MoE 模型"
    ),
    "Qwen3-32B and DeepSeek-V3 on 16 dies of A3, Qwen3-8B and 30B-A3B on two 910B2 cards": (
        "16 die A3 上的 Qwen3-32B 与 DeepSeek-V3，两卡 910B2 上的 Qwen3-8B 与 30B-A3B"
    ),
    "Qwen3-8B and 0.6B on 910B2 (eager and graph), Qwen3-8B on an A3 die": (
        "910B2（eager 与图模式）上的 Qwen3-8B 与 0.6B，A3 单 die 上的 Qwen3-8B"
    ),
    "times before and after them": "优化前后的时间",
    "not fitted: rows": "未参与拟合：行数",
    "fitted: rows": "参与拟合：行数",
    "8 and 16 dies of A3, two cards of a 910B4-class chip": "8 与 16 die 的 A3，两卡 910B4 级芯片",
    "gains of single optimisations": "单项优化的收益",
    "whole steps of several cards": "多卡整步",
    "whole single-card steps": "单卡整步",
    "kernels: vector, cache, sampling": "kernel：向量、缓存、采样",
    "kernels: matrix products": "kernel：矩阵乘",
    "kernels: attention": "kernel：attention",
    "kernels: all": "kernel：全部",
    "collectives alone": "单独的集合通信",
    "plain roofline's median": "朴素屋顶线的中位误差",
    "points; direction right in": "个百分点；方向正确",
    "beyond 5 %": "（超过 5 % 的）",
    "optimisation, alone": "单项优化",
    "op by op (eager)": "逐算子（eager）",
    "in a graph (ge_graph)": "图模式（ge_graph）",
    "not distinguishable": "无法区分",
    "of it waiting": "其中等待",
    "in collectives": "集合通信",
    "median error": "中位误差",
    "no effect": "无效果",
    "compared": "比较对象",
    "source": "来源",
    "rows": "行数",
    "dies": "die 数",
    " of ": " / ",
}


def in_chinese(lines: Iterable[str]) -> list[str]:
    """The lines of a table with their words in Chinese; numbers and names stay."""
    said = []
    for line in lines:
        for english, chinese in sorted(WORDS.items(), key=lambda item: -len(item[0])):
            line = line.replace(english, chinese)
        said.append(line)
    return said


if __name__ == "__main__":
    tables = (in_chinese(rows()) for rows in (accuracy_rows, gain_rows, dies_rows))
    print("\n\n".join("\n".join(lines) for lines in tables))
