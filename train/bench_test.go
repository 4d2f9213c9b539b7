package train_test

import (
	"context"
	"fmt"
	"testing"

	"evenkeel/train"
	"evenkeel/train/data"
)

// A step of one node and of two with half of its samples each.
func BenchmarkStep(b *testing.B) {
	training, _ := digits(b)
	numbers, err := data.NewSynthetic(1000, 512, 10, 1)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		net  *train.Network
		data train.Data
	}{
		{"convnet", must(train.Convnet(8, 8, 1, 10, 16, 32)), training},
		{"mlp", must(train.MLP(512, 512, 512, 10)), numbers},
	} {
		for _, sizes := range [][]int{{64}, {32, 32}} {
			b.Run(fmt.Sprintf("%s/nodes=%d", c.name, len(sizes)), func(b *testing.B) {
				tr := trainer(b, c.net, c.data, train.Config{MicroBatches: sizes})
				for b.Loop() {
					if _, err := tr.Step(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
