"""The first page in English and Chinese."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("Ascend What-If", "昇腾 What-If"),
    "about": (
        "Where does the time of LLM inference on Ascend go, and what would an optimisation gain? The same scenario is predicted by a model and measured on a device, and the two are laid side by side.",
        "昇腾上大模型推理的时间去了哪里？一项优化能带来多少？同一个场景由模型预测、在设备上测量，并把两者放在一起。",
    ),
    "predict": ("Predict", "预测"),
    "predict_about": (
        "Choose a model, a chip and a load; flip a switch and see step, TTFT, tokens/s and memory move, each with its interval.",
        "选择模型、芯片与负载；拨动开关，看单步、TTFT、token/s 与显存如何变化，均带区间。",
    ),
    "predict_go": ("Open the Lab", "打开实验台"),
    "measure": ("Measure", "测量"),
    "measure_about": (
        "Run the very same list of operations on your NPU, GPU or CPU, and see each operation predicted and measured.",
        "在你的 NPU、GPU 或 CPU 上运行同一份操作清单，逐个操作对照预测与实测。",
    ),
    "measure_go": ("How to measure", "如何测量"),
    "import": ("Import", "导入"),
    "import_about": (
        "Drop a profile of torch_npu, msprof or PyTorch: what was slow, who was waited for, and the step replayed with a change.",
        "放入 torch_npu、msprof 或 PyTorch 的性能数据：哪里慢、在等谁，并带着一项改动重放这一步。",
    ),
    "import_go": ("Open a profile", "打开性能数据"),
    "learn": ("Learn", "学习"),
    "learn_about": (
        "One question a lesson: guess, reveal, move the controls, and see the measured figure and its source.",
        "一课一问：先猜，再揭晓，拖动控件，看实测数字及其来源。",
    ),
    "learn_go": ("First lesson", "第一课"),
    "sample_lead": ("For example:", "例如："),
    "sample": (
        "a decode step of Qwen3-8B on one Atlas A3 die is predicted at {predicted} ms (90 % interval {ends}); {measured} ms were measured ({source}).",
        "Qwen3-8B 在一个 Atlas A3 die 上的解码步预测为 {predicted} ms（90 % 区间 {ends}）；实测 {measured} ms（{source}）。",
    ),
    "sample_fit": (
        "That row was used in a fit. How far predictions are off on rows that were not: page Calibration.",
        "该行参与过拟合。未参与拟合的行误差多大：见“校准”页。",
    ),
    "sample_not_fit": ("That row was not used in any fit.", "该行未参与任何拟合。"),
    "four": ("Four short sentences", "四句话"),
    "move_less": ("Move less.", "少搬一点。"),
    "move_less_about": ("Quantisation makes the data smaller.", "量化缩小数据。"),
    "write_once_less": ("Write once less.", "少写一次。"),
    "write_once_less_about": ("Fusion saves what is written in between.", "融合减少中间写回。"),
    "move_while": ("Move while computing.", "边搬边算。"),
    "move_while_about": ("A pipeline hides part of the moving.", "流水重叠隐藏部分搬运时间。"),
    "wait_less": ("Wait less for launches.", "少等下发。"),
    "wait_less_about": ("A graph repeats no scheduling.", "图模式减少重复调度。"),
}
