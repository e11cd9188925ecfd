# SPDX-License-Identifier: Apache-2.0
import os
import signal
import sys
import unittest
import warnings

from bellows import ps
from ps_support import ENVIRONMENT, Server, ServerTestCase, in_processes, is_stopped, server_of
from support import missing

NO_TORCH = missing("torch", "numpy")
if not NO_TORCH:
    import torch
    from ps_network import network, train
    from torch import nn

#: Learners' programs begin so.
BEGIN = """
import sys
import torch
from bellows import ps
from ps_network import difference, loss_of, network, train
"""


#: What torch does with groups, schedulers and the norm of gradients.
GROUPS = """
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, StepLR

def groups(net):
    first, *others = net.parameters()
    return [{"params": first, "lr": 0.3}, {"params": others, "weight_decay": 0.1}]

def params(of):
    return of if isinstance(of, list) else of.parameters()

def warm_up(n):
    return min(1, (n + 1) / 20)

def train_with(net, optimizer, scheduler, clip_norm):
    for step in range(50):
        optimizer.zero_grad()
        loss_of(net, step).backward()
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip_norm)
        optimizer.step()
        if scheduler:
            scheduler.step()

def is_close(net, other, exact):
    pairs = zip(net.parameters(), other.parameters())
    return all(torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)
"""


class WithoutTorch(ServerTestCase):
    def test_import(self):
        """bellows.ps can be imported where there is no torch"""
        out, _ = self.program("""
            import sys
            sys.modules["torch"] = None
            from bellows import ps
            try:
                ps.Optimizer
            except ImportError as error:
                print("torch" in str(error), issubclass(ps.FullError, ps.ParamServerError))
        """)
        self.assertEqual(out, "True True")


@unittest.skipIf(NO_TORCH, NO_TORCH)
class LikeTorch(ServerTestCase):
    def test_rules(self):
        """one learner has the bits of torch.optim after 50 steps, with each rule"""
        rules = [
            ("sgd", "SGD", "lr=0.1"),
            ("sgd", "SGD", "lr=0.1, weight_decay=0.01"),
            ("momentum", "SGD", "lr=0.1, momentum=0.9"),
            ("sgd", "SGD", "lr=0.1, momentum=0.8, nesterov=True"),
            ("adagrad", "Adagrad", "initial_accumulator_value=0.1"),
            ("adam", "Adam", ""),
            ("adam", "Adam", "lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.01"),
            ("adamw", "AdamW", ""),
            ("rmsprop", "RMSprop", ""),
            ("rmsprop", "RMSprop", "lr=0.001, alpha=0.9, momentum=0.5"),
        ]
        servers = []
        for number, _ in enumerate(rules):
            servers.append(Server(self, f"socket{number}", "--threads=2"))
            self.addCleanup(servers[-1].close)
        text = BEGIN
        for server, (rule, name, terms) in zip(servers, rules):
            text += f"""
one, other = network(), network()
train(other, torch.optim.{name}(other.parameters(), {terms}), 50)
with ps.Optimizer(one.parameters(), rule="{rule}", socket="{server.socket}", {terms}) as optimizer:
    train(one, optimizer, 50)
    assert optimizer.updates == 50
assert difference(one, network())[0] > 0
print("{rule} {name} {terms}", *difference(one, other))
"""
        out, _ = self.program(text, **ENVIRONMENT)
        said = [f"{rule} {name} {terms} 0 0" for rule, name, terms in rules]
        self.assertEqual(out.splitlines(), said)

    def test_groups(self):
        """groups, schedules and clipping by norm do what they do in torch"""
        # What torch computes otherwise is equal but for rounding.
        cases = {
            "groups": ("groups(one)", "groups(other)", "lr=0.1", "None", True),
            "step": ("one", "other", "schedule=ps.StepSchedule(7, 0.5)", "StepLR(o, 7, 0.5)", True),
            "cosine": (
                "one",
                "other",
                "schedule=ps.CosineSchedule(60, 0.01)",
                "CosineAnnealingLR(o, 60, 0.01)",
                False,
            ),
            "warm_up": ("one", "other", "warm_up=20", "LambdaLR(o, warm_up)", False),
            "clip_norm": ("one", "other", "clip_norm=0.3", "None", False),
        }
        text = BEGIN + GROUPS
        for name, (ours, theirs, terms, scheduler, exact) in cases.items():
            server = Server(self, name, "--threads=2")
            self.addCleanup(server.close)
            text += f"""
one, other = network(), network()
o = torch.optim.SGD(params({theirs}), lr=0.1)
train_with(other, o, {scheduler}, 0.3 if "{name}" == "clip_norm" else None)
with ps.Optimizer(params({ours}), socket="{server.socket}", lr=0.1, {terms}) as optimizer:
    train(one, optimizer, 50)
plain = network()
train(plain, torch.optim.SGD(plain.parameters(), lr=0.1), 50)
print("{name}", is_close(one, other, {exact}), is_close(plain, other, {exact}))
""".replace("lr=0.1, lr=0.1", "lr=0.1")
        out, _ = self.program(text, **ENVIRONMENT)
        self.assertEqual(out.splitlines(), [f"{name} True False" for name in cases])

    def test_kills(self):
        """a server that is killed, again and again, is not noticed"""
        server = self.serve("--threads=2")
        out, _ = self.program(
            BEGIN
            + """
from ps_support import kill_server
one, other = network(), network()
train(other, torch.optim.Adam(other.parameters()), 60)
with ps.Optimizer(one.parameters(), rule="adam") as optimizer:
    for step in range(60):
        optimizer.zero_grad()
        loss_of(one, step).backward()
        if step % 15 == 7:
            kill_server(int(sys.argv[1]))
        optimizer.step()
    print(optimizer.updates)
print(*difference(one, other))
""",
            str(server.pid),
            **ENVIRONMENT,
        )
        self.assertEqual(out, "60\n0 0")
        self.assertEqual(server.said().count("was killed"), 4)

    def test_in_step(self):
        """two learners in step are one process with the mean of their gradients"""
        self.serve("--mode=sync", "--learners=2", "--threads=2")
        out, _ = self.program(
            BEGIN
            + """
from ps_support import in_processes

def learn(rank, barrier):
    net = network(rank)
    with ps.Optimizer(net.parameters(), lr=0.1, rule="momentum") as optimizer:
        barrier.wait()
        train(net, optimizer, 50, rank)
        return optimizer.updates, [p.tolist() for p in net.parameters()]

nets = []
for updates, values in in_processes(2, learn):
    nets.append(network())
    for p, value in zip(nets[-1].parameters(), values):
        p.data = torch.tensor(value)
    print(updates)
# The first to join says how the weights begin.
for start in 0, 1:
    other = network(start)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    for step in range(50):
        means = []
        for rank in 0, 1:
            optimizer.zero_grad()
            loss_of(other, step, rank).backward()
            means.append([p.grad.clone() for p in other.parameters()])
        for p, a, b in zip(other.parameters(), *means):
            p.grad = (a + b) / 2
        optimizer.step()
    if difference(nets[0], other)[0] == 0:
        print("equal", *difference(nets[1], other))
""",
            **ENVIRONMENT,
        )
        self.assertEqual(out.splitlines(), ["50", "50", "equal 0 0"])

    def test_both(self):
        """each gradient of two processes counts once"""
        self.serve("--threads=2")

        def learn(rank, barrier):
            net = network(rank)
            # In floats, sums of whole numbers are exact.
            with ps.Optimizer(net.parameters(), lr=1, overlap=True) as optimizer:
                for _ in range(1000):
                    for p in net.parameters():
                        p.grad = torch.full_like(p, rank + 1)
                    optimizer.step()
                optimizer.drain()
                barrier.wait()
                optimizer.pull()
                return optimizer.updates, {float(x) for p in net.parameters() for x in p.flatten()}

        zeros = [nn.Parameter(torch.zeros_like(p)) for p in network().parameters()]
        with ps.Optimizer(zeros, lr=1) as optimizer:
            self.assertEqual(in_processes(2, learn), [(2000, {-3000.0})] * 2)
            optimizer.pull()
            self.assertTrue(all(bool((p == -3000).all()) for p in zeros))


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Memory(ServerTestCase):
    def test_gradients(self):
        """backward writes to the slot's two payloads, in turns"""
        self.serve()
        net = nn.Linear(4, 3)
        with ps.Optimizer(net.parameters(), lr=0.1) as optimizer:
            places = []
            for _ in range(4):
                optimizer.zero_grad()
                places.append(net.weight.grad.data_ptr())
                net(torch.ones(2, 4)).sum().backward()
                self.assertEqual(net.weight.grad.data_ptr(), places[-1])
                self.assertEqual(net.weight.grad.tolist(), [[2.0] * 4] * 3)
                optimizer.step()
                self.assertIsNone(net.weight.grad)
            self.assertEqual(places[:2], places[2:])
            self.assertNotEqual(places[0], places[1])
            self.assertEqual(optimizer.updates, 4)

    def test_weights(self):
        """parameters are the store's memory, which comes again and again"""
        server = self.serve("--learners=2")
        net = nn.Linear(4, 3)
        with ps.Optimizer(net.parameters(), lr=0.1) as optimizer:
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
                weights = [line for line in file if "bellows-ps-weights" in line]
            self.assertEqual(len(weights), 1)
            self.assertEqual(weights[0].split()[1], "r--s")
            begin, end = (int(x, 16) for x in weights[0].split()[0].split("-"))
            places = set()
            for _ in range(20):
                net(torch.ones(2, 4)).sum().backward()
                optimizer.step()
                for p in net.parameters():
                    self.assertTrue(begin <= p.data_ptr() < end)
                places.add(net.weight.data_ptr())
            # Each learner's, the saver's, the current one, and one to write to.
            self.assertTrue(1 < len(places) <= 5, len(places))
        self.assertFalse(begin <= net.weight.data_ptr() < end)
        net.weight.data.zero_()
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            self.assertNotIn("bellows-ps", file.read())
        self.eventually(lambda: "learner 0 has ended" in server.said())

    def test_ways(self):
        """gradients that were made elsewhere, are missing, sparse or replaced count as they are"""
        self.serve()

        def assign(p):
            p.grad = torch.ones(3, 4)

        def assign_transposed(p):
            p.grad = torch.ones(4, 3).t()

        def replace_data(p):
            p.grad.data = torch.ones(3, 4)

        def accumulate(p):
            for _ in range(2):
                (p.sum() / 2).backward()

        def replace(p):
            p.sum().backward()
            p.grad = p.grad * 1

        def sparse(p):
            p.grad = torch.ones(3, 4).to_sparse()

        weight = nn.Parameter(torch.zeros(3, 4))
        other = nn.Parameter(torch.zeros(5))
        expected = 0
        with ps.Optimizer([weight, other], lr=1) as optimizer:
            for to_none in False, True:
                for way in assign, assign_transposed, replace_data, accumulate, replace, sparse:
                    if to_none and way is replace_data:
                        continue
                    optimizer.zero_grad(set_to_none=to_none)
                    way(weight)
                    optimizer.step()
                    expected -= 1
                    self.assertEqual(weight.tolist(), [[expected] * 4] * 3, way)
                # Without any, and without zero_grad before.
                optimizer.step()
                self.assertEqual(weight.tolist(), [[expected] * 4] * 3)
                optimizer.zero_grad()
                other.grad = None
                weight.grad = None
                optimizer.step()
                self.assertEqual(weight.tolist(), [[expected] * 4] * 3)
            self.assertEqual(other.tolist(), [0] * 5)
            loss = optimizer.step(lambda: weight.sum() * 0 + 7)
            self.assertEqual(loss, 7)
            weight.grad = torch.ones(3, 4)
            optimizer.step(scale=0.5)
            self.assertEqual(weight.tolist(), [[expected - 0.5] * 4] * 3)

    def test_kinds(self):
        """shared, transposed, frozen and empty parameters"""
        self.serve()
        net = nn.Module()
        net.a = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        net.b = net.a
        net.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        net.none = nn.Parameter(torch.ones(0, 3))
        net.one = nn.Parameter(torch.tensor(5.0))
        with ps.Optimizer([net.a, net.b, net.frozen, net.none, net.one], lr=1) as optimizer:
            self.assertEqual(net.a.tolist(), [[0, 3], [1, 4], [2, 5]])
            (net.a.sum() + net.b[0].sum() + net.one).backward()
            optimizer.step()
            self.assertIs(net.a, net.b)
            self.assertEqual(net.a.tolist(), [[-2, 1], [0, 3], [1, 4]])
            self.assertEqual(net.one.item(), 4)
            self.assertEqual(net.frozen.tolist(), [1, 1])

    def test_copy(self):
        """with copy, parameters stay where they are, in their order, and may be written to"""
        self.serve()
        weight = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        place, strides = weight.data_ptr(), weight.stride()
        with warnings.catch_warnings(), ps.Optimizer([weight], lr=1, copy=True) as optimizer:
            warnings.simplefilter("error")
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()
            self.assertEqual(weight.tolist(), [[-1, 2], [0, 3], [1, 4]])
            weight.data.zero_()
            optimizer.pull()
            self.assertEqual(weight.tolist(), [[-1, 2], [0, 3], [1, 4]])
        self.assertEqual((weight.data_ptr(), weight.stride()), (place, strides))

    def test_write(self):
        """a write to the weights ends the program"""
        self.serve()
        self.program(
            BEGIN
            + "net = network(); ps.Optimizer(net.parameters(), lr=1); net[0].weight.data.zero_()",
            status=-signal.SIGSEGV,
            **ENVIRONMENT,
        )

    def test_types(self):
        """gradients of 16 bits are rounded to the nearest"""
        for kind in torch.bfloat16, torch.float16:
            server = Server(self, str(kind))
            self.addCleanup(server.close)
            weight = nn.Parameter(torch.zeros(100))
            values = torch.randn(100)
            terms = {"lr": 1, "gradient_type": kind, "socket": server.socket}
            with ps.Optimizer([weight], **terms) as optimizer:
                for _ in range(3):
                    optimizer.zero_grad()
                    (weight * values).sum().backward()
                    optimizer.step()
            expected = torch.zeros(100)
            for _ in range(3):
                expected -= values.to(kind).float()
            self.assertTrue(torch.equal(weight, expected))

    def test_lifetime(self):
        """the weights' memory stays while a tensor of it is in use, and with it the learner"""
        self.serve("--learners=1")
        net = network()
        optimizer = ps.Optimizer(net.parameters(), lr=1)
        state = net.state_dict()
        with self.assertWarnsRegex(RuntimeWarning, "still in use"):
            optimizer.close()
        optimizer.close()
        self.assertTrue(optimizer.closed)
        self.assertEqual(len(state["0.bias"].tolist()), 17)
        with self.assertRaises(ps.FullError):
            ps.Optimizer(net.parameters(), lr=1)
        del state
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ps.Optimizer(net.parameters(), lr=1).close()

    def test_fork(self):
        """a process that was forked is no learner, and its end no learner's"""
        self.serve()
        net = network()
        optimizer = ps.Optimizer(net.parameters(), lr=1, wait=10)
        child = os.fork()
        if child == 0:
            try:
                said = ""
                try:
                    optimizer.step()
                except ps.InvalidError as error:
                    said = str(error)
                del optimizer, net
                os._exit(7 if "forked" in said else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        train(net, optimizer, 3)
        self.assertEqual(optimizer.updates, 3)
        optimizer.close()


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Errors(ServerTestCase):
    def refused(self, kind, text, params=None, **terms):
        params = list(network().parameters()) if params is None else params
        with self.assertRaisesRegex(kind, text):
            ps.Optimizer(params, **{"lr": 0.1, **terms})

    def test_arguments(self):
        """arguments that make no sense are refused with a sentence"""
        wrong = ps.InvalidError
        self.refused(wrong, "rule is 'lamb': it is one of sgd, ", rule="lamb")
        self.refused(wrong, "gradient_type is 'int8'", gradient_type="int8")
        self.refused(wrong, "the rule sgd has no betas", betas=(0.9, 0.99))
        self.refused(wrong, "the rule adam has no momentum", rule="adam", momentum=0.9)
        self.refused(wrong, "the rule sgd has no default for lr", lr=None)
        self.refused(wrong, "lr is nan", lr=float("nan"))
        self.refused(wrong, "weight_decay is -1", weight_decay=-1)
        self.refused(wrong, "nesterov needs a momentum", nesterov=True)
        self.refused(wrong, "no parameter", params=[])
        self.refused(wrong, "no parameter", params=[torch.zeros(3)])
        self.refused(wrong, "no parameter", params=[{"params": []}])
        self.refused(wrong, "group 0 is no dictionary", params=[{"lr": 1}])
        self.refused(wrong, "group 0 has betas", params=[{"params": [], "betas": (0, 0)}])
        self.refused(wrong, "period is 0", schedule=ps.StepSchedule(0))
        self.refused(wrong, "no StepSchedule", schedule="cosine")
        self.refused(wrong, "clip_norm is -1", clip_norm=-1)
        self.refused(wrong, "parameter 0 is a int", params=[3])
        p = nn.Parameter(torch.zeros(3))
        self.refused(wrong, "parameter 1 is computed", params=[p, p * 2])
        self.refused(wrong, "parameter 1 is torch.float64", params=[p, nn.Parameter(p.double())])
        self.refused(wrong, "parameter 1 .* on meta", params=[p, nn.Parameter(p.to("meta"))])
        self.refused(wrong, "parameters 0 and 1 have the same", params=[p, nn.Parameter(p.data)])

    def test_server(self):
        """there is no server, it is full, or it has another model or optimizer"""
        self.refused(ps.UnavailableError, "No such file", socket=self.path("none"))
        self.refused(ps.UnavailableError, "BELLOWS_PS_SOCKET")
        self.serve("--learners=1")
        self.refused(ps.InvalidError, "betas of 1", rule="adam", betas=(1.0, 0.9))
        with ps.Optimizer(network().parameters(), lr=0.1):
            self.refused(ps.InvalidError, "same model", params=[nn.Parameter(torch.zeros(3))])
            self.refused(ps.InvalidError, "another optimizer, or other terms", lr=0.2)
            self.refused(ps.FullError, "there are 1 learners already")

    def test_end(self):
        """a server that ends for good is an error, and the parameters stay"""
        server = self.serve()
        net = network()
        optimizer = ps.Optimizer(net.parameters(), lr=0.1)
        train(net, optimizer, 3)
        before = [p.clone() for p in net.parameters()]
        server.end()
        with self.assertRaisesRegex(ps.UnavailableError, "bellows-ps has ended"):
            train(net, optimizer, 3)
        with self.assertRaisesRegex(ps.UnavailableError, "bellows-ps has ended"):
            optimizer.close()
        self.assertTrue(all(map(torch.equal, before, net.parameters())))
        net[0].weight.data.zero_()
        for call in optimizer.step, optimizer.zero_grad, optimizer.pull, optimizer.drain:
            self.assertRaisesRegex(ps.InvalidError, "is closed", call)

    def test_wait(self):
        """a wait that is too long is an error, and the gradient counts once"""
        server = self.serve()
        weight = nn.Parameter(torch.zeros(3))
        with ps.Optimizer([weight], lr=1, wait=0.1) as optimizer:
            os.kill(server_of(server.pid), signal.SIGSTOP)
            self.eventually(lambda: is_stopped(server_of(server.pid)))
            weight.sum().backward()
            with self.assertRaisesRegex(ps.TimeoutError, "applies nothing for 100 ms"):
                optimizer.step()
            self.assertIsNone(weight.grad)
            self.assertEqual(weight.tolist(), [0, 0, 0])
            os.kill(server_of(server.pid), signal.SIGCONT)
            self.eventually(lambda: self.drained(optimizer))
            optimizer.pull()
            self.assertEqual(weight.tolist(), [-1, -1, -1])
            self.assertEqual(optimizer.updates, 1)

    def drained(self, optimizer):
        try:
            optimizer.drain()
        except TimeoutError:
            return False
        return True
