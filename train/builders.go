package train

import (
	"fmt"

	"evenkeel/train/layer"
)

// MLP is dense layers of these sizes, the inputs' first and the number of classes last, with ReLU between them.
func MLP(sizes ...int) (*Network, error) {
	if len(sizes) < 2 {
		return nil, fmt.Errorf("%w: an MLP of %d sizes; want the inputs', those of hidden layers, the classes'", ErrUsage, len(sizes))
	}
	if err := positive("MLP", sizes...); err != nil {
		return nil, err
	}
	var layers []Named
	for i := range len(sizes) - 1 {
		if i > 0 {
			layers = append(layers, Named{Name: fmt.Sprintf("relu%d", i), Layer: layer.ReLU{Size: sizes[i]}})
		}
		layers = append(layers, Named{Name: fmt.Sprintf("dense%d", i+1), Layer: layer.Dense{Positions: 1, In: sizes[i], Out: sizes[i+1]}})
	}
	return NewNetwork(1, sizes[len(sizes)-1], layers...)
}

// Convnet is 3x3 convolutions with ReLU over height x width images of depth floats, one per number of channels: the
// first with stride 1, all others with stride 2; then a dense layer.
func Convnet(height, width, depth, classes int, channels ...int) (*Network, error) {
	if len(channels) == 0 {
		return nil, fmt.Errorf("%w: a convnet without convolutions", ErrUsage)
	}
	if err := positive("convnet", append([]int{height, width, depth, classes}, channels...)...); err != nil {
		return nil, err
	}
	var layers []Named
	for i, out := range channels {
		c := layer.Convolution{Height: height, Width: width, In: depth, Out: out, Kernel: 3, Stride: min(2, i+1)}
		height, width = c.Image()
		depth = out
		layers = append(layers, Named{Name: fmt.Sprintf("conv%d", i+1), Layer: c}, Named{Name: fmt.Sprintf("relu%d", i+1), Layer: layer.ReLU{Size: height * width * depth}})
	}
	layers = append(layers, Named{Name: "dense", Layer: layer.Dense{Positions: 1, In: height * width * depth, Out: classes}})
	return NewNetwork(1, classes, layers...)
}

// TransformerConfig are the sizes of a transformer.
type TransformerConfig struct {
	Tokens int // vocabulary
	Length int // tokens of a sample
	Size   int // floats of a token, a multiple of Heads
	Heads  int
	Blocks int
}

// Transformer predicts each next token: blocks of causal attention and of two dense layers with GELU, the hidden one 4
// x Size, each with layer norm before and a residual connection around it (the order of GPT-2).
func Transformer(c TransformerConfig) (*Network, error) {
	if err := positive("transformer", c.Tokens, c.Length, c.Size, c.Heads, c.Blocks); err != nil {
		return nil, err
	}
	if c.Size%c.Heads != 0 {
		return nil, fmt.Errorf("%w: a transformer of %d floats a token, which %d heads cannot share", ErrUsage, c.Size, c.Heads)
	}
	t, d := c.Length, c.Size
	layers := []Named{{Name: "embedding", Layer: layer.Embedding{Positions: t, Tokens: c.Tokens, Size: d}}}
	for i := range c.Blocks {
		at := func(name string) string { return fmt.Sprintf("block%d.%s", i+1, name) }
		layers = append(layers,
			Named{Name: at("norm1"), Layer: layer.LayerNorm{Positions: t, Size: d}}, Named{Name: at("query-key-value"), Layer: layer.Dense{Positions: t, In: d, Out: 3 * d}},
			Named{Name: at("attention"), Layer: layer.Attention{Positions: t, Size: d, Heads: c.Heads}}, Named{Name: at("mix"), Layer: layer.Dense{Positions: t, In: d, Out: d}},
			Named{Name: at("add1"), Add: at("norm1")},
			Named{Name: at("norm2"), Layer: layer.LayerNorm{Positions: t, Size: d}}, Named{Name: at("up"), Layer: layer.Dense{Positions: t, In: d, Out: 4 * d}},
			Named{Name: at("gelu"), Layer: layer.GELU{Size: t * 4 * d}}, Named{Name: at("down"), Layer: layer.Dense{Positions: t, In: 4 * d, Out: d}},
			Named{Name: at("add2"), Add: at("norm2")})
	}
	layers = append(layers, Named{Name: "norm", Layer: layer.LayerNorm{Positions: t, Size: d}}, Named{Name: "predict", Layer: layer.Dense{Positions: t, In: d, Out: c.Tokens, Std: 0.02}})
	return NewNetwork(t, c.Tokens, layers...)
}

func positive(what string, sizes ...int) error {
	for _, s := range sizes {
		if s < 1 {
			return fmt.Errorf("%w: %s of sizes %v; all must be at least 1", ErrUsage, what, sizes)
		}
	}
	return nil
}
