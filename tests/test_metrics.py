import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_opt import metrics

NAN = float("nan")


def history(**values) -> metrics.History:
  rounds = 10 * (1 + np.arange(len(next(iter(values.values()))[0])))
  return metrics.History(
    list(rounds), {k: np.array(v) for k, v in values.items()}
  )


class TestOverClients:
  @settings(max_examples=20, deadline=None)
  @given(
    seed=st.integers(0, 10**6),
    clients=st.integers(1, 40),
    empty=st.floats(0, 0.9),
  )
  def test_equal_to_a_plain_loop(self, seed, clients, empty):
    rng = np.random.default_rng(seed)
    sizes = np.where(rng.random(clients) < empty, 0, 5)
    accuracy = np.where(sizes > 0, rng.random(clients), np.nan)
    kept = np.sort(accuracy[sizes > 0])
    # Padding keeps one shape, so that all examples share one compilation.
    pad = 40 - clients
    args = np.pad(accuracy, (0, pad)), np.pad(sizes, (0, pad))
    worst = jax.jit(metrics.worst_decile)(*args)
    deciles = jax.jit(metrics.deciles)(*args)
    assert list(deciles) == [f"accuracy_decile_{i}" for i in range(1, 10)]
    if not kept.size:
      assert np.isnan(worst)
      return
    count = int(np.ceil(kept.size / 10))
    np.testing.assert_allclose(worst, kept[:count].mean(), rtol=1e-5)
    np.testing.assert_allclose(
      list(deciles.values()),
      np.quantile(kept, np.arange(1, 10) / 10),
      rtol=1e-5,
      atol=1e-7,
    )

  def test_worst_decile_rounds_the_number_of_clients_up(self):
    accuracy = jnp.arange(11) / 10
    # 11 clients: the worst two. Their mean is 0.05.
    np.testing.assert_allclose(
      metrics.worst_decile(accuracy, jnp.ones(11, int)), 0.05
    )

  def test_maps_over_grid_points(self):
    accuracy = jnp.array([[0.0, 1.0], [0.5, 0.7]])
    sizes = jnp.array([3, 3])
    worst = jax.vmap(metrics.worst_decile, (0, None))(accuracy, sizes)
    np.testing.assert_allclose(worst, [0.0, 0.5])


class TestHistory:
  def test_append_grows_every_metric(self):
    grown = metrics.History()
    grown.append(10, {"train_loss": [2.0, 3.0], "test_accuracy": [0.1, 0.2]})
    grown.append(20, {"test_accuracy": [0.3, 0.4], "train_loss": [1.0, 2.0]})
    assert grown.rounds == [10, 20]
    assert grown.num_points == 2
    assert list(grown.metrics) == ["train_loss", "test_accuracy"]
    np.testing.assert_array_equal(
      grown.metrics["test_accuracy"], [[0.1, 0.3], [0.2, 0.4]]
    )
    assert grown.final(1) == {"train_loss": 2.0, "test_accuracy": 0.4}

  def test_one_point_may_append_scalars(self):
    grown = metrics.History()
    grown.append(1, {"train_loss": jnp.float32(0.5)})
    assert grown.final(0) == {"train_loss": 0.5}

  @pytest.mark.parametrize(
    ("round_number", "values", "message"),
    [
      (10, {"train_loss": [1.0, 1.0]}, "round_number: 10 does not come after"),
      (20, {"test_loss": [1.0, 1.0]}, r"values: metrics are \['test_loss'\]"),
      (20, {}, r"values: metrics are \[\]"),
      (20, {"train_loss": [1.0]}, r"values: shapes are .* must be \(2,\)"),
      (20, {"train_loss": [[1.0, 1.0]]}, "values: shapes are"),
    ],
  )
  def test_append_refuses_what_does_not_continue(
    self, round_number, values, message
  ):
    grown = history(train_loss=[[1.0], [2.0]])
    with pytest.raises(ValueError, match=message):
      grown.append(round_number, values)
    assert grown.rounds == [10]

  def test_refuses_metrics_that_do_not_fit_the_rounds(self):
    with pytest.raises(ValueError, match=r"must be \[points, 2\]"):
      metrics.History([1, 2], {"train_loss": np.zeros((3, 1))})

  def test_unknown_metric_names_the_measured_ones(self):
    with pytest.raises(
      ValueError, match=r"'f1' was not measured; .*train_loss"
    ):
      history(train_loss=[[1.0]]).values("f1")

  def test_no_result_from_the_first_broken_loss_on(self):
    h = history(
      train_loss=[[1.0, np.inf, 1.0], [1.0, 1.0, 1.0], [NAN, 1.0, 1.0]],
      test_loss=[[1.0, 1.0, 1.0], [1.0, 1.0, NAN], [1.0, 1.0, 1.0]],
      test_accuracy=[[0.5, 0.9, 0.9], [0.2, 0.3, 0.4], [0.1, 0.1, 0.1]],
    )
    assert [h.diverged_round(i) for i in range(3)] == [20, 30, 10]
    assert [h.status(i) for i in range(3)] == ["diverged"] * 3
    np.testing.assert_array_equal(
      h.values("test_accuracy"),
      [[0.5, NAN, NAN], [0.2, 0.3, NAN], [NAN, NAN, NAN]],
    )
    assert set(h.final(0).values()) == {None}
    assert h.best(0, "test_accuracy") == (0.5, 10)
    assert h.best(1, "test_accuracy") == (0.3, 20)
    assert h.best(2, "test_accuracy") is None

  def test_another_broken_metric_is_no_divergence(self):
    h = history(train_loss=[[1.0, 0.5]], f1=[[NAN, 0.2]])
    assert h.status(0) == "ok"
    assert h.best(0, "f1") == (0.2, 20)

  def test_best_follows_the_direction_of_the_metric(self):
    h = history(train_loss=[[3.0, 1.0, 2.0]], rank=[[3.0, 1.0, 2.0]])
    assert h.best(0, "train_loss") == (1.0, 20)
    assert h.best(0, "rank") is None

  def test_before_the_first_evaluation(self):
    h = metrics.History()
    assert h.num_points == 0
    assert h.final(0) == {}
    assert h.status(0) == "ok"


class TestSettings:
  def test_groups_what_differs_in_seed_only(self):
    points = [
      {"client_lr": lr, "seed": seed} for seed in (0, 1) for lr in (0.1, 0.5)
    ]
    assert metrics.group_by_seed(points) == [
      ({"client_lr": 0.1}, [0, 2]),
      ({"client_lr": 0.5}, [1, 3]),
    ]

  def test_varying_ignores_what_is_the_same(self):
    points = [{"a": 1, "b": 2.0, "seed": 0}, {"a": 1, "b": 3.0, "seed": 0}]
    assert metrics.varying(points) == ["b"]

  @pytest.mark.parametrize(
    ("value", "text"),
    [
      (2.0, "2"),
      (0.1, "0.1"),
      (1e-5, "1e-05"),
      (10**7, "10000000"),
      ("a", "a"),
    ],
  )
  def test_format_value(self, value, text):
    assert metrics.format_value(value) == text


class TestCriterion:
  accuracy = history(
    train_loss=np.ones((3, 3)),
    test_accuracy=[[0.1, 0.9, 0.5], [0.6, 0.6, 0.6], [0.2, 0.5, 0.7]],
  )
  points = tuple({"client_lr": lr} for lr in (0.1, 0.2, 0.3))

  @pytest.mark.parametrize(
    ("rule", "n", "scores", "selected"),
    [
      ("last", 1, [0.5, 0.6, 0.7], 2),
      ("best", 1, [0.9, 0.6, 0.7], 0),
      ("mean_last_n", 2, [0.7, 0.6, 0.6], 0),
      ("mean_last_n", 9, [0.5, 0.6, 1.4 / 3], 1),
    ],
  )
  def test_rules(self, rule, n, scores, selected):
    criterion = metrics.Criterion("test_accuracy", "max", rule, n)
    np.testing.assert_allclose(criterion.scores(self.accuracy), scores)
    assert metrics.select(self.accuracy, self.points, criterion) == selected

  def test_min_takes_the_lowest(self):
    criterion = metrics.Criterion("train_loss", "min", "best")
    h = history(train_loss=[[1.0, 3.0], [2.0, 0.5], [NAN, 0.1]])
    assert metrics.select(h, self.points, criterion) == 1

  @pytest.mark.parametrize("rule", ["last", "best", "mean_last_n"])
  def test_ties_go_to_the_first(self, rule):
    h = history(test_accuracy=np.full((3, 2), 0.5))
    criterion = metrics.Criterion(rule=rule)
    assert metrics.select(h, self.points, criterion) == 0

  @pytest.mark.parametrize("rule", ["last", "best", "mean_last_n"])
  def test_never_a_diverged_point(self, rule):
    h = history(
      train_loss=[[1.0, NAN], [1.0, 1.0], [np.inf, 1.0]],
      test_accuracy=[[0.9, 0.9], [0.1, 0.1], [0.9, 0.9]],
    )
    criterion = metrics.Criterion(rule=rule)
    assert metrics.select(h, self.points, criterion) == 1
    h.metrics["train_loss"][1, 0] = NAN
    assert metrics.select(h, self.points, criterion) is None

  def test_none_before_the_first_evaluation(self):
    empty = metrics.History()
    assert metrics.select(empty, self.points, metrics.Criterion()) is None

  def test_settings_compete_by_their_mean_over_seeds(self):
    points = [{"lr": lr, "seed": s} for lr in (0.1, 0.5) for s in (0, 1)]
    # The best single point is number 3, the best setting is the first.
    h = history(test_accuracy=[[0.7], [0.8], [0.1], [0.9]])
    assert metrics.select(h, points, metrics.Criterion()) == 0

  def test_a_setting_with_fewer_diverged_seeds_comes_first(self):
    points = [{"lr": lr, "seed": s} for lr in (0.1, 0.5) for s in (0, 1)]
    h = history(
      train_loss=[[NAN], [1.0], [1.0], [1.0]],
      test_accuracy=[[0.1], [0.9], [0.3], [0.3]],
    )
    assert metrics.select(h, points, metrics.Criterion()) == 2
    # With as many on both sides, the first seed that is ok is named.
    h.metrics["train_loss"][3] = NAN
    assert metrics.select(h, points, metrics.Criterion()) == 1

  @pytest.mark.parametrize(
    ("arguments", "message"),
    [
      ({"direction": "up"}, "direction: 'up' is not 'max' or 'min'"),
      (
        {"rule": "first"},
        "rule: 'first' is not 'last', 'best', 'mean_last_n' or",
      ),
      ({"n": 0}, "n: 0 must be at least 1"),
    ],
  )
  def test_refuses(self, arguments, message):
    with pytest.raises(ValueError, match=message):
      metrics.Criterion(**arguments)

  def test_is_immutable_and_readable(self):
    criterion = metrics.Criterion("train_loss", "min", "mean_last_n", 5)
    assert str(criterion) == "lowest train_loss (mean of last 5)"
    with pytest.raises(dataclasses.FrozenInstanceError):
      criterion.n = 2
