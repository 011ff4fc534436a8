"""Plain NumPy loops of the algorithm boxes; tests have them as `reference`.

`reference.scaffold` is `scaffold` of variance_reduction.py, and so on:

rounds.py              the rounds a loop is given, local steps, the mean: Round,
                       LocalTrace, descend, mean
rules.py               step rules of clients and of the server: Sgd, Momentum,
                       Adam, Nesterov, Sam, AdamW, Adagrad, Yogi, FedOpt, Sps,
                       DeltaSgd, Muon, orthogonalized
fed_avg.py             fed_avg, fed_prox, moon
drift.py               methods that correct what drives clients apart: fed_nova,
                       fed_dyn, fed_exp, fed_cm, fed_acg, mime_lite, prox_skip,
                       fed_dc
uphill.py              methods that take gradients uphill: fed_lesam,
                       fed_lesam_last_step, fed_smoo, fed_speed
momenta.py             methods whose clients share moments: fed_adamw, fed_lada,
                       double_momentum
personal.py            methods whose clients have models of their own: ditto,
                       fed_per, p_fed_me, per_fed_avg
variance_reduction.py  scaffold, minibatch_sgd, minibatch_sarah, bvr_l_sgd,
                       bvr_l_sgd_theory
composite.py           regularizers (Zero, L1, Nuclear, L2Ball, L1Ball), mirror
                       maps (Euclidean, Entropy), fed_avg_subgradient, fed_mid,
                       fed_dual_avg, proximal_gradient, fista
asynchronous.py        a heap of events, and FedBuff, FedAsync, Ca2fl, Fadas
uploads.py             what clients send, and how the server combines it: top_k,
                       random_k, sign, quantize, ErrorFeedback, median,
                       trimmed_mean, multi_krum
"""
