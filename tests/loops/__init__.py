"""Plain NumPy loops of the algorithm boxes; tests have them as `reference`.

rounds.py              the rounds a loop is given, local steps, the mean
rules.py               step rules of clients and of the server
fed_avg.py             FedAvg, FedProx and MOON
drift.py               methods that correct what drives clients apart
uphill.py              methods that take gradients uphill
momenta.py             methods whose clients share moments
personal.py            methods whose clients have models of their own
variance_reduction.py  SCAFFOLD, SARAH and BVR-L-SGD
composite.py           regularizers, mirror maps, FedMiD and FedDualAvg
asynchronous.py        a heap of events, and FedBuff, FedAsync, CA2FL, FADAS
uploads.py             what clients send, and how the server combines it
"""
