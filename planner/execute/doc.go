// Package execute runs a plan on the networks of package train: each stage is a process, the processes are joined by mutual TLS, and
// micro-batches run through them by the 1F1B schedule. It shows that plans run, and compares the time of an iteration with its
// prediction; large jobs run on other trainers.
//
// NewJob checks a plan against a network, MakeKeys makes the certificates of its stages. The first stage is a Server, which
// owns the data, gives the orders and reports; every other stage is a Client, in this process or on another machine. Local
// starts all of them as processes of one machine. See the Example.
//
// A plan's layers are the network's Units. Replicas of a stage are goroutines of its process over one copy of the
// weights; each takes its samples of every micro-batch. Losses equal those of unpartitioned training except for the order in
// which gradients of micro-batches are summed; a stage of one replica computes the same bits as the whole network.
//
// The method is that of the patent of the Hangzhou Binjiang Institute of Blockchain and Data Security on model-parallel
// training of heterogeneous systems: devices are divided into a server side and client sides, and what flows between
// them is encrypted. Here, unlike in the patent, clients hand activations directly to each other, not through the server.
package execute
