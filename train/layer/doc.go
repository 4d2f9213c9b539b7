// Package layer is the layers that networks of package train are made of. A layer describes its parameters and computes
// its output and gradients in memory that the caller gives it; see Layer.
package layer
