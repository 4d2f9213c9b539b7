// Package layer has the layers of package train's networks. A layer describes its parameters and computes its output
// and gradients in memory that the caller provides; see Layer.
package layer
