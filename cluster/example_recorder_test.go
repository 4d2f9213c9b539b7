package cluster_test

import (
	"fmt"
	"time"

	"evenkeel/cluster"
)

// What a round that waits for two of four nodes does with each gradient.
func ExampleRecorder_Receive() {
	r := cluster.NewRecorder(&cluster.Cluster{Nodes: make([]cluster.Node, 4)})
	at := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	gradient := cluster.Gradient{Samples: 8}
	for round, opened := range []float64{7, 9} { // nodes 2 and 3 take up work and do not come back
		r.Open(round, at(opened), cluster.Collect{}, []bool{false, false, round == 1, round == 0})
		r.HandOut(3-round, 8, at(opened))
		r.Close(at(opened + 1))
	}

	collect := cluster.Collect{Quorum: cluster.Quorum{Count: 2}, Grace: at(0.1), MaxStaleness: at(2)}
	r.Open(2, at(10), collect, nil)
	r.HandOut(0, 8, at(10))
	r.HandOut(1, 8, at(10))
	fmt.Println(r.Receive(0, at(10.5), gradient) == cluster.Fresh)
	fmt.Println(r.Receive(2, at(10.7), gradient)) // older: taken, but no part of the quorum
	r.HandOut(2, 8, at(10.7))
	fmt.Println(r.Receive(1, at(10.9), gradient))                  // completes the quorum
	fmt.Println(r.Receive(3, at(10.95), gradient))                 // within the grace duration, but too old
	fmt.Println(r.Receive(2, at(11.5), gradient) == cluster.Stale) // after it: for the next round
	end, _ := r.Closed()
	fmt.Println(end, r.Report().Accepted)
	// Output:
	// true
	// aged
	// fresh
	// stale
	// false
	// 11s 24
}
