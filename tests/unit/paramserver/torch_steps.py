# SPDX-License-Identifier: Apache-2.0
"""Steps of torch.optim's optimizers with random gradients, as test_rule_torch.cc reads them.

Prints for each optimizer a line of text that says what it is, its first weights, and for each step the rate as a
double, the gradient, the weights and the state. Exit status: 77 without PyTorch.
"""
import sys
import warnings

try:
    import torch
except ImportError:
    sys.exit(77)

ELEMENTS = 203
STEPS = 300
WARM_UP = 20
# Name, optimizer, its options, its arrays of state, and what is done to a gradient first.
CASES = (
    ("sgd", "SGD", {"lr": 0.05}, (), {}),
    ("sgd", "SGD", {"lr": 0.05, "weight_decay": 0.01}, (), {"clip": 0.7}),
    ("momentum", "SGD", {"lr": 0.02, "momentum": 0.9}, ("momentum_buffer",), {"scale": 1 / 3}),
    ("momentum", "SGD", {"lr": 0.02, "momentum": 0.85, "nesterov": True, "weight_decay": 0.003},
     ("momentum_buffer",), {"scale": 0.3, "clip": 0.4}),
    ("adagrad", "Adagrad", {"lr": 0.1, "eps": 1e-10}, ("sum",), {}),
    ("adagrad", "Adagrad", {"lr": 0.1, "eps": 1e-6, "weight_decay": 0.02}, ("sum",), {"clip": 1.5}),
    ("adam", "Adam", {"lr": 0.003, "betas": (0.9, 0.999), "eps": 1e-8}, ("exp_avg", "exp_avg_sq"), {}),
    ("adam", "Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.1},
     ("exp_avg", "exp_avg_sq"), {"scale": 1 / 7}),
    ("adam", "AdamW", {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.05},
     ("exp_avg", "exp_avg_sq"), {}),
    ("rmsprop", "RMSprop", {"lr": 0.01, "alpha": 0.99, "eps": 1e-8}, ("square_avg",), {}),
    ("rmsprop", "RMSprop", {"lr": 0.002, "alpha": 0.9, "eps": 1e-4, "momentum": 0.7, "weight_decay": 0.03},
     ("square_avg", "momentum_buffer"), {"clip": 0.9}),
)


def put(tensor):
    sys.stdout.buffer.write(tensor.detach().numpy().tobytes())


def steps(rule, optimizer_name, options, states, gradient):
    weights = torch.nn.Parameter(torch.randn(ELEMENTS))
    optimizer = getattr(torch.optim, optimizer_name)([weights], **options)
    schedulers = torch.optim.lr_scheduler
    schedule = schedulers.SequentialLR(optimizer, [
        schedulers.LinearLR(optimizer, 1 / WARM_UP, 1, WARM_UP - 1),
        schedulers.CosineAnnealingLR(optimizer, STEPS, options["lr"] / 10)], [WARM_UP])
    momentum = options.get("momentum", 0)
    betas = options.get("betas", (momentum, options.get("alpha", 0)))
    said = (rule, torch.__version__, ELEMENTS, STEPS, len(states), WARM_UP, options["lr"], *betas,
            options.get("eps", 0), options.get("weight_decay", 0), int(optimizer_name == "AdamW"),
            int(options.get("nesterov", False)), gradient.get("scale", 1), gradient.get("clip", 0))
    sys.stdout.buffer.write((" ".join(map(str, said)) + "\n").encode())
    put(weights)
    for step in range(STEPS):
        # Of many sizes, as those of real networks are.
        weights.grad = torch.randn(ELEMENTS) * 10 ** (torch.rand(ELEMENTS) * 4 - 3)
        put(torch.tensor(optimizer.param_groups[0]["lr"], dtype=torch.float64))
        put(weights.grad)
        if "scale" in gradient:
            weights.grad.mul_(gradient["scale"])
        if "clip" in gradient:
            torch.nn.utils.clip_grad_value_([weights], gradient["clip"])
        optimizer.step()
        schedule.step()
        put(weights)
        for name in states:
            put(optimizer.state[weights][name])


def main():
    # SequentialLR's, of itself.
    warnings.filterwarnings("ignore", "The epoch parameter")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    for case in CASES:
        steps(*case)


main()
