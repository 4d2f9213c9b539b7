package peers_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/peers"
	"github.com/evenkeel/evenkeel/bucket/plain"
)

type flat struct{}

func (flat) Seconds(length, batch int) float64 { return 0.1 + 1e-3*float64(length*batch) }
func (flat) Cap(length int) int                { return 1000 / length }
func (flat) Breaks(int) []int                  { return nil }

// How much of an epoch's shortest time each system's rule takes.
func Example() {
	lengths := slices.Repeat(bucket.Lengths{5, 10, 25, 50, 100}, 1001)
	speeds := []float64{1, 1}
	bound := plain.Bound(lengths, flat{}, speeds)
	for _, p := range peers.All()[:3] {
		steps := p.Cut(lengths, flat{}, len(speeds), peers.SafeTokens(lengths, flat{}), rand.New(rand.NewPCG(1, 1)))
		score, err := bucket.Judge(lengths, bucket.Listed(steps), flat{}, speeds, 0, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %.3f, %d samples lost\n", p.Name, score.EpochSeconds/bound, score.Lost)
	}
	// Output:
	// fairseq, default: 1.055, 0 samples lost
	// fairseq, grouped, multiple 1: 0.999, 5 samples lost
	// fairseq, grouped, tokens of the longest: 0.999, 5 samples lost
}
