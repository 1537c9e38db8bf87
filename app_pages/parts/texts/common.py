"""Words that every page uses."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "app": ("Ascend What-If", "昇腾 What-If"),
    "language": ("Language", "语言"),
    "lab": ("Lab", "实验台"),
    "lab_help": ("Flip a switch and see what it does to the step.", "拨动一个开关，看它如何改变一步的耗时。"),
    "compare": ("Compare", "对比"),
    "compare_help": ("Two scenarios or results on one time axis.", "把两个场景或结果放在同一条时间轴上。"),
    "profile": ("Profile", "性能数据"),
    "profile_help": ("Read a measured profile: diagnosis, timeline, what-ifs.", "读取测得的性能数据：诊断、时间线、假如。"),
    "calibration": ("Calibration", "校准"),
    "calibration_help": ("How far predictions are off, and where every number comes from.", "预测误差有多大，每个数字来自哪里。"),
    "class_matmul": ("matrix product", "矩阵乘"),
    "class_attention": ("attention", "注意力"),
    "class_norm": ("normalisation", "归一化"),
    "class_vector": ("vector", "向量"),
    "class_cache": ("KV cache", "KV 缓存"),
    "class_experts": ("experts", "专家"),
    "class_communication": ("communication", "通信"),
    "class_wait": ("waiting", "等待"),
    "class_graph": ("graph replay", "图重放"),
    "class_host": ("host: Python", "主机：Python"),
    "class_launch": ("host: launch", "主机：下发"),
    "class_ai_cpu": ("AI CPU", "AI CPU"),
    "hover_name": ("kernel", "kernel"),
    "hover_time": ("time, µs", "耗时，µs"),
    "hover_start": ("start", "开始"),
    "hover_layer": ("layer", "层"),
    "hover_class": ("class", "类别"),
    "hover_shapes": ("shapes", "形状"),
    "hover_bytes": ("bytes", "字节"),
    "hover_flops": ("Mflop", "Mflop"),
    "hover_bound": ("bound by", "受限于"),
    "hover_roofline": ("of its roofline", "达到屋顶线"),
    "hover_busy": ("busy", "忙碌占比"),
}  # fmt: skip

#: The words of charts' hovers.
HOVERS = ("name", "time", "start", "layer", "class", "shapes", "bytes", "flops", "bound", "roofline", "busy")
