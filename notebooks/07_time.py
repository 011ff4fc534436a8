# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A clock
#
# Clients have different speeds. The server can wait for all clients of a round,
# for the first ones to arrive, until a deadline, or only for enough updates to
# fill a buffer (FedBuff). This notebook compares these four schedules on the
# same clients, over server steps and over time.
#
# [![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/fedjax-opt/fedjax_opt/blob/main/notebooks/07_time.ipynb)

# %%
# Installs the package on Colab, or where a wheel of it is in this folder.
import os
import pathlib
import subprocess
import sys

REPOSITORY = "https://github.com/fedjax-opt/fedjax_opt"
source = os.environ.get("FEDJAX_OPT_SOURCE")  # Goes before both.
for wheel in sorted(pathlib.Path().glob("fedjax_opt-*.whl")):
  source = source or f"./{wheel}[run]"
if "google.colab" in sys.modules:
  source = source or f"fedjax_opt[run] @ git+{REPOSITORY}"
if source:
  command = [sys.executable, "-m", "pip", "install", "-q", source]
  if subprocess.run(command).returncode:
    raise SystemExit(
      f"{source} cannot be installed. As long as {REPOSITORY} is not public, "
      "run `pip wheel --no-deps .` in a clone of it, and upload the wheel to "
      "the folder of this notebook, /content on Colab."
    )

# %%
import jax

on_accelerator = (
  jax.default_backend() != "cpu"
  or os.environ.get("FEDJAX_OPT_NOTEBOOK_SIZES") == "accelerator"
)
print(f"{jax.device_count()} x {jax.devices()[0].device_kind}")

if on_accelerator:
  sizes = dict(
    num_clients=1000,
    cohort=20,
    concurrency=100,
    rates=[0.03, 0.1, 0.3, 1.0],
    seeds=[0, 1, 2],
    report_seeds=[10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
    seconds=120,
    steps=1000,
  )
else:
  sizes = dict(
    num_clients=100,
    cohort=10,
    concurrency=30,
    rates=[0.1, 0.3, 1.0],
    seeds=[0, 1, 2],
    report_seeds=[10, 11, 12, 13, 14],
    seconds=60,
    steps=400,
  )

# %%
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_opt as fo

# %% [markdown]
# ## The problem
#
# The examples are small images of digits. The clients' mixtures of labels come
# from a Dirichlet distribution.

# %%
train, test = fo.datasets.embedded.digits()
train, validation = fo.data.hold_out(train, fraction=0.1)
model = fo.models.MLP(hidden=(32,), num_classes=10)


def init(key):
  return model.init(key, jnp.zeros((1, 8, 8, 1)))["params"]


def logits(params, batch):
  return model.apply({"params": params}, batch["x"] / 16)


def loss_fn(params, batch, rng):  # [B]
  del rng
  cross_entropy = optax.softmax_cross_entropy_with_integer_labels
  return cross_entropy(logits(params, batch), batch["y"])


def per_example(params, batch):  # {name: [B]}
  right = logits(params, batch).argmax(-1) == batch["y"]
  return {"loss": loss_fn(params, batch, None), "accuracy": right * 1.0}


def clients(seed):
  rows = fo.partition.dirichlet(
    train["y"],
    num_clients=sizes["num_clients"],
    alpha=0.3,
    examples_per_client=100,
    seed=seed,
  )
  return fo.ClientData.from_partition(train, rows, keep_pool=True)


# %% [markdown]
# ## The devices
#
# Seconds per local step are lognormal: about half of the clients are within a
# factor of two of the median, and the slowest of a hundred takes about ten
# times the median. Bytes per second are lognormal too. Each seed has its own
# clients and devices.


# %%
def system(seed):
  return fo.systems.sample(
    sizes["num_clients"],
    fo.systems.lognormal(median=0.1, sigma=1.0),  # seconds per local step
    bytes_down=fo.systems.lognormal(1e5, 0.5),  # bytes per second
    bytes_up=fo.systems.lognormal(2e4, 0.5),
    seed=seed,
  )


def durations(work):
  devices = system(work.seed)
  return devices.durations(work.steps, work.bytes_down, work.bytes_up)


with fo.plots.figure(1, scale=(1.6, 1)) as (figure, axes):
  seconds = np.sort(system(0).seconds_per_step)
  axes[0, 0].plot(seconds, np.linspace(0, 100, len(seconds)))
  fo.plots.log_scale(axes[0, 0].xaxis, (seconds[0], seconds[-1]))
  axes[0, 0].set(xlabel="Seconds per local step", ylabel="Clients below it (%)")
figure

# %% [markdown]
# ## Four schedules
#
# A schedule says when clients are sent out, and for which clients the server
# waits. Here it is a function of the *work* of the clients: their local steps,
# and the bytes that they receive and send. The function returns a timetable,
# which does not depend on the model's weights. So the engine knows it before
# the first round. `until` sets a time limit.
#
# - *over-selection* sends out 1.5 times as many clients as it waits for.
# - *deadline* ends each round after 1.5 seconds. Late clients send what they
#   have done by then.
# - *FedBuff* takes a step after every `cohort` arrivals. A client that arrives
#   is replaced at once.

# %%
budget, cohort, steps = sizes["seconds"], sizes["cohort"], sizes["steps"]


def within(make):
  def schedule(work):
    table = make(durations(work))
    return fo.schedules.until(table, max(budget, table.time[0]))

  return schedule


more = cohort // 2
wait = fo.schedules.synchronous
schedules = {
  "wait for all": lambda d: wait(d, steps, cohort),
  "over-selection": lambda d: wait(d, steps, cohort, over_selection=more),
  "deadline": lambda d: wait(d, steps, cohort, deadline=1.5, partial=True),
  "FedBuff": lambda d: fo.schedules.buffered(
    d, steps, sizes["concurrency"], buffer=cohort
  ),
}
schedules = {name: within(make) for name, make in schedules.items()}
options = dict(batch_size=20, weighting="uniform", eval_every=5)


def make(name):
  algorithm = fo.fed_buff if name == "FedBuff" else fo.fed_avg
  return lambda rate: algorithm(loss_fn, optax.sgd(rate))


tables = {}
for name, schedule in schedules.items():
  simulator = fo.Simulator(
    make(name)(0.1), clients(0), schedule=schedule, **options
  )
  tables[name] = simulator.timetables(init(jax.random.key(0)))[0]
  usage = fo.schedules.usage(tables[name], sizes["num_clients"])
  print(
    f"{name:14} {len(tables[name].time):4} steps, "
    f"{usage.at_work:4.1f} clients at work, {100 * usage.used_time:3.0f} % of "
    f"time used, staleness {usage.mean_staleness:.1f}"
  )

# %% [markdown]
# Steps are the server's. The *staleness* of an update is the number of steps
# since its client was sent out; the table has the mean.
#
# The pictures show the first steps of over-selection and of FedBuff. A bar is a
# client that is away: blue if the server uses what it sends, grey if not. Thin
# lines are the server's steps. The second panel has four groups of clients, by
# speed: their share of the clients, of the updates that the server uses, and of
# the seconds away. Over-selection leaves out the slowest clients.

# %%
groups = fo.schedules.speed_groups(system(0).seconds_per_step)
fo.plots.timetable(tables["over-selection"], groups, None)

# %%
fo.plots.timetable(tables["FedBuff"], groups, None)

# %% [markdown]
# ## Training
#
# Each schedule gets the same time. Its rate is chosen on validation examples. A
# method of `fo.compare` may have settings of its own, here a schedule.

# %%
study = fo.compare(
  {
    name: fo.Method(
      make(name), {"rate": sizes["rates"]}, {"schedule": schedule}
    )
    for name, schedule in schedules.items()
  },
  init,
  clients,
  rounds=steps,
  seeds=sizes["seeds"],
  report_seeds=sizes["report_seeds"],
  validation=validation,
  test=test,
  evaluate=fo.evaluation.federated(per_example),
  target=0.8,
  title="Four ways to wait",
  **options,
)
study

# %% [markdown]
# The picture shows the same curves over server steps and over time. Lines are
# means over the seeds of the report. Over server steps the schedules that wait
# for the clients of a round are close to each other. FedBuff, whose updates are
# stale, is behind. Over time the order is different.

# %%
with fo.plots.figure(2, scale=(1.2, 1.2)) as (figure, axes):
  looks = fo.plots.method_styles(study.methods)
  for i, cell in enumerate(study.cells):
    accuracy = 100 * cell.report_runs.history.metrics["test_accuracy"].mean(0)
    style = dict(
      zip(("color", "ls", "marker"), looks[cell.method], strict=True)
    )
    style |= dict(ms=4, markevery=(i, 4), label=cell.method)
    for panel, x in zip(axes[0], ("rounds", "time"), strict=True):
      panel.plot(cell.spent(x), accuracy, **style)
  for panel, label in zip(
    axes[0], ("Server step", "Simulated time (s)"), strict=True
  ):
    panel.set(xlabel=label, ylabel="Test accuracy (%)")
  axes[0, 0].legend()
figure

# %% [markdown]
# The table shows what each schedule needs to reach an accuracy of 80 %, as
# means over the seeds of the report. Accuracy is measured every five steps, so
# a difference of a step or two says little.

# %%
for verdict in study.verdicts:
  spent = verdict.to_target
  print(
    f"{verdict.cell.method:14} {spent['rounds']:6.1f} server steps, "
    f"{spent['time']:6.1f} s, {spent['bytes'] / 1e6:5.2f} MB "
    "for a client in every step"
  )

# %% [markdown]
# ## Fast and slow clients
#
# FedBuff runs once more, at the chosen rate. The table shows how accurate its
# last model is on the training examples of fast and of slow clients.

# %%
rate = study.cells[-1].chosen["rate"]
result = fo.simulate(
  make("FedBuff")(rate),
  init(jax.random.key(0)),
  clients(0),
  rounds=steps,
  schedule=schedules["FedBuff"],
  **options,
)
metrics = fo.evaluate_clients(result, per_example, clients(0))
accuracy = metrics.values["global"]["accuracy"]
updates = fo.schedules.usage(tables["FedBuff"], sizes["num_clients"]).updates
for group in range(4):
  mine = groups == group
  print(
    f"quarter {group + 1} {['(fastest)', '', '', '(slowest)'][group]:9}: "
    f"{updates[mine].mean():4.1f} updates of a client, "
    f"accuracy {100 * accuracy[mine].mean():.1f} %"
  )

# %% [markdown]
# On a CPU the slowest quarter sends about a third fewer updates than the
# fastest one, and the model is about as accurate on its examples. This is one
# run, so a difference of a point may be chance.
#
# ## Try next
#
# - Make messages smaller: `options["upload"] = fo.transforms.top_k(0.1)`.
#   Uploads are then faster, and all timetables change.
# - Give FedBuff a larger `concurrency`: steps come faster, and updates are
#   staler.
# - Let devices sleep: `system(seed).when(fo.systems.cyclic(100, period=20))`.
#
# [A fair comparison](06_fair_comparison.ipynb) says how methods are tuned and
# compared. On the command line `--system`, `--schedule` and `--max_time` do the
# same: see [Simulated time](https://fedjax-opt.github.io/fedjax_opt/how_to/time.html).
